"""Which faults are in force at a store, and what they did."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lmcache_core.testing.call_faults import Call, CallDelay, CallError, CallFault, CallHang
from lmcache_core.testing.schedule import Schedule, Step

F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStatistics:
    """What a faulty store did since it was made.

    Attributes:
        calls: How often each was called.
        applied: How often each kind of fault happened, by its class's name: calls, or chunks.
    """

    calls: Mapping[Call, int]
    applied: Mapping[str, int]


class Meeting:
    """One call and the faults that it met.

    Args:
        faults: Of its kind of call.
        draw: Decides their chances.
        switch: Where they are counted.
    """

    def __init__(self, faults: tuple[CallFault, ...], draw: random.Random, switch: CallSwitch) -> None:
        self.draw = draw
        self._faults = faults
        self._switch = switch

    def happens(self, kind: type[F]) -> F | None:
        """Give a fault of this kind if there is one and its chance came; it counts as happened."""
        for fault in self._faults:
            if isinstance(fault, kind) and self.draw.random() < fault.probability:
                self._switch.note(kind.__name__)
                return fault
        return None


class CallSwitch:
    """Faults of a store. Safe from any thread.

    Whether the n-th call of a kind is harmed, and how, follows from the seed alone.

    Args:
        seed: Decides what has a probability, and which byte is wrong.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._faults: tuple[CallFault, ...] = ()
        self._lock = threading.Lock()
        self._changed = threading.Event()  # set when others are in force; they get one of their own
        self._hung_changed = threading.Condition(self._lock)
        self._hung = 0
        self._calls: Counter[Call] = Counter()
        self._applied: Counter[str] = Counter()
        self._schedule: Schedule[CallFault] | None = None

    def apply(self, *faults: CallFault) -> None:
        """Have these faults in force, and no others; calls that hang go on. Ends a schedule."""
        self._end_schedule()
        self._put(faults)

    def clear(self) -> None:
        """Have no fault in force; calls that hang go on. Ends a schedule."""
        self.apply()

    def schedule(self, steps: Iterable[Step[CallFault]]) -> Schedule[CallFault]:
        """Put faults in force at times, in seconds from now; see also `flapping`. Ends an earlier schedule."""
        self._end_schedule()
        schedule: Schedule[CallFault] = Schedule(steps, self._put)
        with self._lock:
            self._schedule = schedule
        schedule.start()
        return schedule

    @property
    def current(self) -> tuple[CallFault, ...]:
        """In force now."""
        return self._faults

    @property
    def statistics(self) -> CallStatistics:
        """What happened so far."""
        with self._lock:
            return CallStatistics(calls=dict(self._calls), applied=dict(self._applied))

    def wait_hung(self, calls: int, timeout_s: float) -> bool:
        """Wait until so many calls hang at once; False when that took too long."""
        with self._lock:
            return self._hung_changed.wait_for(lambda: self._hung >= calls, timeout_s)

    def meet(self, call: Call) -> Meeting:
        """Begin a call: count it, wait, hang or raise.

        Raises:
            BaseException: What a `CallError` makes.
        """
        with self._lock:
            self._calls[call] += 1
            number, faults, changed = self._calls[call], self._faults, self._changed
        draw = random.Random(f"{self._seed}/{call.name}/{number}")  # noqa: S311 - reproducible, not secret
        meeting = Meeting(tuple(fault for fault in faults if call in fault.calls), draw, self)
        delay = meeting.happens(CallDelay)
        if delay is not None:
            changed.wait(delay.delay_s + draw.uniform(0.0, delay.jitter_s))
        if meeting.happens(CallHang) is not None:
            self._hang(changed)
        error = meeting.happens(CallError)
        if error is not None:
            raise error.error()
        return meeting

    def note(self, kind: str) -> None:
        """Count a fault that happened."""
        with self._lock:
            self._applied[kind] += 1

    def _put(self, faults: tuple[CallFault, ...]) -> None:
        with self._lock:
            self._faults = faults
            changed, self._changed = self._changed, threading.Event()
        changed.set()

    def _end_schedule(self) -> None:
        with self._lock:
            schedule, self._schedule = self._schedule, None
        if schedule is not None:
            schedule.stop()

    def _hang(self, changed: threading.Event) -> None:
        self._count_hung(1)
        changed.wait()
        self._count_hung(-1)

    def _count_hung(self, change: int) -> None:
        with self._lock:
            self._hung += change
            self._hung_changed.notify_all()
