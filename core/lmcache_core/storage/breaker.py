"""Cuts live traffic off a store that fails, and lets it back a little at a time. Never open for good."""

from __future__ import annotations

import enum
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_RATE = 0.5
"""Share of bad calls in the window that opens the breaker; resilience4j's default."""

_WINDOW_CALLS = 1000
_JITTER = 0.2
_FIRST_SHARE = 0.1
_GROWTH = 2.0


class BreakerState(str, enum.Enum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """One trial call at a time."""
    RAMP = "ramp"
    """Trials passed; a growing share of the calls."""


class Outcome(enum.Enum):
    """How an admitted call ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABANDONED = "abandoned"
    """Nobody knows: its caller went away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTerms:
    """When to open and how to come back.

    Attributes:
        failures: Failed calls in a row that open it. A call that times out opens it at once: a
            request has already lost a whole deadline.
        slow_call_s: A call that passes but takes longer counts as bad in the window.
        least_calls: Calls in the window below which no share is judged.
        window_s: Seconds that the window looks back.
        open_s: Seconds until the first trial.
        max_open_s: Most seconds between two trials.
        trials: Trials that must pass in a row.
        ramp_s: Seconds from a tenth of the traffic to all of it.
        trial_s: Seconds after which a trial that did not report no longer keeps others out.
    """

    failures: int = 3
    slow_call_s: float = 5.0
    least_calls: int = 10
    window_s: float = 10.0
    open_s: float = 1.0
    max_open_s: float = 60.0
    trials: int = 2
    ramp_s: float = 5.0
    trial_s: float = 20.0


@dataclass(slots=True)
class Permit:
    """Leave to make one call; report its outcome with it, once."""

    generation: int
    started_s: float
    trial: bool
    reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerReport:
    """What a breaker says of itself.

    Attributes:
        state: Where it stands.
        since_s: For how long.
        reason: What opened it last; ``""`` while it has never opened.
        next_trial_s: Until the next trial may start; 0 unless open.
        opened: How often it has opened.
        bad_calls: In the window.
        calls: In the window.
        share: Of the calls it admits now.
    """

    state: BreakerState
    since_s: float
    reason: str
    next_trial_s: float
    opened: int
    bad_calls: int
    calls: int
    share: float


class CircuitBreaker:
    """closed → open → half-open → ramp → closed. Any thread.

    Opens at the first time-out, after `failures` errors in a row, or when half of at least ten calls
    in the window were bad or slow. The pause doubles with each failed trial up to a cap, with jitter,
    and halves again for each pause's length spent closed.

    Args:
        terms: When to open and how to come back.
        on_change: Told each change in order, outside the lock, by one thread at a time; must not block.
        clock: Monotonic seconds.
        jitter: Gives a number from 0 to 1.
    """

    def __init__(
        self,
        terms: BreakerTerms,
        on_change: Callable[[BreakerReport], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._terms = terms
        self._on_change = on_change
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._since_s = clock()
        self._generation = 1
        self._reason = ""
        self._opened = 0
        self._pause_s = 0.0
        self._trial_at_s = 0.0
        self._trial: Permit | None = None
        self._passes = 0
        self._streak = 0
        self._credit = 0.0
        self._calls: deque[tuple[float, bool]] = deque(maxlen=_WINDOW_CALLS)
        self._bad = 0
        self._untold: deque[BreakerReport] = deque()
        self._telling = threading.Lock()

    def admit(self, *, promised: bool = False) -> Permit | None:
        """Give leave for one call, or None: treat it as a miss and do not wait.

        Args:
            promised: The call fetches what an admitted call has found: on the ramp it goes along with that.
        """
        now_s = self._clock()
        generation = self._generation  # before the state: a call let in late is of before the opening, and ignored
        if self._state is BreakerState.CLOSED:  # read without the lock: late by one call at most
            return Permit(generation, now_s, trial=False)
        with self._lock:
            permit = self._admit(now_s, promised)
        self._tell()
        return permit

    def report(self, permit: Permit, outcome: Outcome) -> None:
        """Say how an admitted call ended; outcomes from before the last opening are ignored."""
        now_s = self._clock()
        with self._lock:
            self._report(permit, outcome, now_s)
        self._tell()

    @property
    def terms(self) -> BreakerTerms:
        """When it opens and how it comes back."""
        return self._terms

    @property
    def is_open(self) -> bool:
        """Whether `admit` would refuse right now."""
        return self._state is BreakerState.OPEN and self._clock() < self._trial_at_s

    def probe_passed(self) -> None:
        """An active check has just proved the store well: try live traffic now instead of at the next trial."""
        with self._lock:
            if self._state is BreakerState.OPEN:
                self._trial_at_s = self._clock()

    def snapshot(self) -> BreakerReport:
        """Say where it stands."""
        with self._lock:
            return self._snapshot()

    # -- inside, under the lock -------------------------------------------------

    def _admit(self, now_s: float, promised: bool) -> Permit | None:
        if self._state is BreakerState.RAMP:
            return Permit(self._generation, now_s, trial=False) if promised else self._admit_share(now_s)
        if self._state is BreakerState.OPEN:
            if now_s < self._trial_at_s:
                return None
            self._become(BreakerState.HALF_OPEN, now_s)
            self._passes = 0
            return self._start_trial(now_s)
        if self._state is BreakerState.HALF_OPEN:
            waiting = self._trial is not None and now_s - self._trial.started_s < self._terms.trial_s
            return None if waiting else self._start_trial(now_s)
        return Permit(self._generation, now_s, trial=False)

    def _start_trial(self, now_s: float) -> Permit:
        self._trial = Permit(self._generation, now_s, trial=True)
        return self._trial

    def _admit_share(self, now_s: float) -> Permit | None:
        share = self._share(now_s)
        if share >= 1.0:
            self._become(BreakerState.CLOSED, now_s)
        self._credit += share
        if self._credit < 1.0:
            return None
        self._credit = min(self._credit - 1.0, 1.0)
        return Permit(self._generation, now_s, trial=False)

    def _share(self, now_s: float) -> float:
        if self._state is BreakerState.RAMP:
            return min(1.0, max(_FIRST_SHARE, (now_s - self._since_s) / self._terms.ramp_s))
        return 1.0 if self._state is BreakerState.CLOSED else 0.0

    def _report(self, permit: Permit, outcome: Outcome, now_s: float) -> None:
        if permit.generation != self._generation or permit.reported:
            return
        permit.reported = True
        if permit is self._trial:
            self._trial = None
        if outcome is Outcome.ABANDONED:
            return
        failed = outcome is not Outcome.PASSED
        self._count(now_s, bad=failed or now_s - permit.started_s > self._terms.slow_call_s)
        self._streak = self._streak + 1 if failed else 0
        why = self._why_open(outcome)
        if why:
            self._open(why, now_s)
        elif permit.trial and not failed and self._state is BreakerState.HALF_OPEN:
            self._passes += 1
            if self._passes >= self._terms.trials:
                self._become(BreakerState.RAMP, now_s)
                self._credit = 1.0

    def _why_open(self, outcome: Outcome) -> str:
        if outcome is Outcome.TIMED_OUT:
            return "a call got no answer before its deadline"
        if outcome is Outcome.FAILED and self._state is not BreakerState.CLOSED:
            return "a call failed on the way back"
        if self._streak >= self._terms.failures:
            return f"{self._streak} calls in a row failed"
        if len(self._calls) >= self._terms.least_calls and self._bad >= _RATE * len(self._calls):
            return f"{self._bad} of {len(self._calls)} calls failed or were slow"
        return ""

    def _count(self, now_s: float, *, bad: bool) -> None:
        while self._calls and (self._calls[0][0] < now_s - self._terms.window_s or len(self._calls) == _WINDOW_CALLS):
            self._bad -= self._calls.popleft()[1]
        self._calls.append((now_s, bad))
        self._bad += bad

    def _open(self, reason: str, now_s: float) -> None:
        if self._state is BreakerState.CLOSED and self._pause_s:
            halvings = (now_s - self._since_s) / max(self._pause_s, self._terms.open_s)
            self._pause_s /= _GROWTH ** min(halvings, 64.0)
        grown_s = self._pause_s * _GROWTH if self._pause_s >= self._terms.open_s else self._terms.open_s
        self._pause_s = min(grown_s, self._terms.max_open_s)
        spread = 1.0 + _JITTER * (2.0 * self._jitter() - 1.0)
        self._trial_at_s = now_s + min(self._pause_s * spread, self._terms.max_open_s)
        self._reason = reason
        self._opened += 1
        self._trial = None
        self._streak = 0
        self._calls.clear()
        self._bad = 0
        self._become(BreakerState.OPEN, now_s)
        self._generation += 1  # after the state, as `admit` reads them the other way round

    def _become(self, state: BreakerState, now_s: float) -> None:
        self._state = state
        self._since_s = now_s
        self._untold.append(self._snapshot())

    def _snapshot(self) -> BreakerReport:
        now_s = self._clock()
        is_open = self._state is BreakerState.OPEN
        return BreakerReport(
            state=self._state,
            since_s=max(0.0, now_s - self._since_s),
            reason=self._reason,
            next_trial_s=max(0.0, self._trial_at_s - now_s) if is_open else 0.0,
            opened=self._opened,
            bad_calls=self._bad,
            calls=len(self._calls),
            share=self._share(now_s),
        )

    def _tell(self) -> None:
        """Tell what is untold; whoever comes while another thread tells leaves it to that one."""
        while self._untold and self._telling.acquire(blocking=False):
            try:
                while self._untold:
                    self._on_change(self._untold.popleft())
            finally:
                self._telling.release()
