"""The workers of a soak, made by a nursery process."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_START_S = 60.0
_END_S = 60.0


class Staff:
    """Workers by number; a context manager.

    Args:
        folder: Where they leave their figures.
        address: Of the server.
        seed: Their own seeds follow from it.

    Attributes:
        codes: How many ended with which exit code; below 0 is a signal.
    """

    def __init__(self, folder: Path, address: str, seed: int) -> None:
        self._folder = folder
        self._seeds = random.Random(seed)
        self._lock = threading.Condition()
        self._living: dict[int, int] = {}
        self.codes: Counter[int] = Counter()
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.nursery", str(folder), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=environ | {"OMP_NUM_THREADS": "1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Staff:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._nursery.kill()
        self._nursery.wait(_END_S)
        self._reader.join(_END_S)
        for pipe in (self._nursery.stdin, self._nursery.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def hire(self, number: int) -> None:
        """Start a worker; it is there a little later."""
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(b"%d %d\n" % (number, self._seeds.randrange(2**32)))
        self._nursery.stdin.flush()

    def wait_for(self, count: int) -> None:
        """Wait until so many live. Raises TimeoutError."""
        with self._lock:
            if not self._lock.wait_for(lambda: len(self._living) >= count, _START_S):
                raise TimeoutError(f"{len(self._living)} of {count} workers started")

    def choose(self, rng: random.Random) -> tuple[int, int]:
        """A living worker: number and process id; zeros when there is none."""
        with self._lock:
            living = sorted((number, pid) for pid, number in self._living.items())
        return rng.choice(living) if living else (0, 0)

    def kill(self, pid: int) -> None:
        """End one with ``SIGKILL``; it is not chosen again, however late its end is told."""
        with self._lock:
            self._living.pop(pid, None)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """Of all that live."""
        with self._lock:
            return list(self._living)

    def dismiss(self) -> None:
        """Ask all to end, and wait for it. Raises TimeoutExpired."""
        assert self._nursery.stdin is not None
        self._nursery.stdin.close()
        self._nursery.wait(_END_S)
        self._reader.join(_END_S)

    def figures(self) -> list[dict[str, Any]]:
        """What every worker told last, dead ones too."""
        return [json.loads(file.read_text()) for file in sorted(self._folder.glob("worker-*.json"))]

    def _read(self) -> None:
        assert self._nursery.stdout is not None
        for line in self._nursery.stdout:
            word, *numbers = line.decode().split()
            with self._lock:
                if word == "started":
                    self._living[int(numbers[1])] = int(numbers[0])
                elif word == "ended":
                    self._living.pop(int(numbers[0]), None)
                    self.codes[int(numbers[1])] += 1
                self._lock.notify_all()
