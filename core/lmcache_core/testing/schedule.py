"""Faults that come and go by the clock."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

F = TypeVar("F")

_JOIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Clear:
    """No fault; ends those before it."""


Step: TypeAlias = "tuple[float, F | Clear | Sequence[F]]"
"""Seconds from the start, and what is in force from then on, instead of what was before."""


class Schedule(Generic[F]):
    """Puts faults in force at their times, on a thread of its own.

    Args:
        steps: In order of time; may be endless.
        put: Called with the faults of a step; what it raises ends the schedule.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        steps: Iterable[Step[F]],
        put: Callable[[tuple[F, ...]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._put = put
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-schedule", daemon=True)

    def start(self) -> None:
        """Begin; times count from here."""
        self._thread.start()

    def stop(self) -> None:
        """Put nothing more in force; what is in force stays."""
        self._ended.set()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the last step; False when that took too long."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        begin_s = self._clock()
        for at_s, faults in self._steps:
            if self._ended.wait(max(0.0, begin_s + at_s - self._clock())):
                return
            self._put(listed(faults))


def listed(faults: F | Clear | Sequence[F]) -> tuple[F, ...]:
    """Give a step's faults as a tuple, empty for `Clear`."""
    if isinstance(faults, Clear):
        return ()
    return tuple(faults) if isinstance(faults, Sequence) else (faults,)


def flapping(
    *faults: F, up_s: float, down_s: float, cycles: int | None = None, jitter_s: float = 0.0, seed: int = 0
) -> Iterator[Step[F]]:
    """Give the steps of something that works for a while and fails for a while, and so on.

    Args:
        faults: In force while it is down.
        up_s: Seconds it works, first.
        down_s: Seconds it then fails.
        cycles: How often; None for ever.
        jitter_s: Up to so many seconds more for each.
        seed: Decides the jitter.

    Raises:
        ValueError: It would take no time.
    """
    if up_s < 0 or down_s < 0 or up_s + down_s <= 0:
        raise ValueError(f"up_s and down_s must be at least 0 and one of them above, got {up_s} and {down_s}")
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    return _flap(faults, (up_s, down_s), cycles, lambda: draw.uniform(0.0, jitter_s))


def _flap(
    faults: Sequence[F], lasting_s: tuple[float, float], cycles: int | None, jitter: Callable[[], float]
) -> Iterator[Step[F]]:
    at_s = 0.0
    for _ in itertools.count() if cycles is None else range(cycles):
        at_s += lasting_s[0] + jitter()
        yield at_s, faults
        at_s += lasting_s[1] + jitter()
        yield at_s, Clear()
