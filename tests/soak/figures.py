"""What the kernel says of a process: memory, threads, open files."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_KIB = 1024


@dataclass(frozen=True)
class Sample:
    """One look at a process.

    Attributes:
        at_s: Since the start of the run.
        rss_bytes: All pages that are there, the shared arena's too.
        anonymous_bytes: Those that its allocators and stacks have. The arena is none of it; it would count as
            private while no worker maps it.
        threads: Names of its threads, with how many of each.
        files: Open file descriptors.
    """

    at_s: float
    rss_bytes: int
    anonymous_bytes: int
    threads: Counter[str]
    files: int


def sample(pid: int, at_s: float) -> Sample:
    """Look at a process. Raises OSError when it is gone."""
    process = Path("/proc") / str(pid)
    table = Counter[str]()
    for line in (process / "smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        table[name.rstrip(":")] = int(value) * _KIB
    return Sample(
        at_s=at_s,
        rss_bytes=table["Rss"],
        anonymous_bytes=table["Anonymous"],
        threads=_threads(process),
        files=len(os.listdir(process / "fd")),  # noqa: PTH208 - names are enough
    )


def _threads(process: Path) -> Counter[str]:
    names: Counter[str] = Counter()
    for task in (process / "task").iterdir():
        try:
            names[(task / "comm").read_text().strip()] += 1
        except OSError:  # it ended meanwhile
            continue
    return names
