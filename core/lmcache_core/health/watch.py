"""One check's schedule and verdict."""

from __future__ import annotations

from lmcache_core.contracts.health import CheckResult, HealthCheck, HealthState
from lmcache_core.contracts.report import CheckReport
from lmcache_core.health.run import CheckTerms, Outcome

_WAKE_GAP_S = 0.1  # live errors come in floods; each may start a run at most this often
_WAKE_GAPS_PER_INTERVAL = 10
_INTERVALS_OF_BELIEF = 3

_NO_ANSWER = "no answer within {timeout:g} s"
_STILL_RUNNING = "no answer within {timeout:g} s; still running after {elapsed:.0f} s"


class CheckWatch:
    """Decides when a check is due, and what its runs come to under rise and fall.

    Knows no threads and no clock: only the monitor's thread calls it, with the time. A check that
    hangs is failed once its timeout is over, and again each interval, but never started twice.

    Args:
        plugin: Who declared the check.
        check: The check.
        name: Its name, read once.
        terms: Its terms at start-up.
        now_s: The time; the first run is due at once.
    """

    def __init__(self, *, plugin: str, check: HealthCheck, name: str, terms: CheckTerms, now_s: float) -> None:
        self.plugin = plugin
        self.check = check
        self.name = name
        self.terms = terms
        self.state = HealthState.UNKNOWN
        self.reason = "has not run yet"
        self.result = CheckResult(healthy=False)
        self.since_s = now_s
        self.judged_s: float | None = None
        self.running = False
        self.overdue = False
        self.irrecoverable = False
        self.engaged_policy: str | None = None
        self.engaged = False
        self.policy_problem = ""
        self._started_s = float("-inf")
        self._due_s = now_s
        self._requested = False
        self._passes = 0
        self._fails = 0

    @property
    def failing(self) -> bool:
        """Whether a policy has to answer for it."""
        return self.state is HealthState.DOWN

    def request(self) -> None:
        """Run it soon, or once more if it is running: what it is measuring may be over."""
        self._requested = True

    def is_due(self, now_s: float) -> bool:
        """Tell whether to start a run now."""
        return not self.running and not self.irrecoverable and now_s >= self._start_s()

    def start(self, now_s: float) -> None:
        """Note that a run has been started."""
        self.running = True
        self.overdue = False
        self._requested = False
        self._started_s = now_s
        self._due_s = now_s + self.terms.interval_s

    def tick(self, now_s: float) -> bool:
        """Judge a run that hangs; tell whether it did."""
        if not self.running or now_s < self._tick_s():
            return False
        if self._due_s <= now_s:
            self._due_s = now_s + self.terms.interval_s
        pattern = _STILL_RUNNING if self.overdue else _NO_ANSWER
        self.overdue = True
        reason = pattern.format(timeout=self.terms.timeout_s, elapsed=now_s - self._started_s)
        self._judge(CheckResult(healthy=False, reason=reason), now_s)
        return True

    def finish(self, outcome: Outcome, now_s: float) -> None:
        """Take the outcome of the run that was started; one that came too late was judged already."""
        late = self.overdue
        self.running = False
        self.overdue = False
        if outcome.terms is not None:
            self.terms = outcome.terms
            self._due_s = min(self._due_s, max(self._started_s + self.terms.interval_s, now_s))
        if outcome.irrecoverable:
            self.irrecoverable = True
            self._become(HealthState.DOWN, outcome.result.reason, outcome.result, now_s)
        elif late:
            return
        elif outcome.skipped:
            self._passes = self._fails = 0
            self._become(HealthState.SKIPPED, "", outcome.result, now_s)
        else:
            self._judge(outcome.result, now_s)

    def next_event_s(self) -> float:
        """When `is_due` or `tick` has something new to say."""
        if self.irrecoverable:
            return float("inf")
        return self._tick_s() if self.running else self._start_s()

    @property
    def belief_s(self) -> float:
        """Age from which on the verdict is not believed any more."""
        if self.irrecoverable:
            return float("inf")
        return _INTERVALS_OF_BELIEF * self.terms.interval_s + self.terms.timeout_s

    def report(self, now_s: float) -> CheckReport:
        """Describe it as it is now."""
        return CheckReport(
            name=self.name,
            plugin=self.plugin,
            backend=self.terms.backend,
            state=self.state,
            reason="; ".join(text for text in (self.reason, self.policy_problem) if text),
            policy=self.terms.policy,
            engaged=self.engaged,
            since_s=max(0.0, now_s - self.since_s),
            age_s=None if self.judged_s is None else max(0.0, now_s - self.judged_s),
            next_run_s=0.0 if self.running else max(0.0, self._start_s() - now_s),
            details=self.result.details,
        )

    def _start_s(self) -> float:
        if not self._requested:
            return self._due_s
        gap_s = min(_WAKE_GAP_S, self.terms.interval_s / _WAKE_GAPS_PER_INTERVAL)
        return min(self._due_s, self._started_s + gap_s)

    def _tick_s(self) -> float:
        return self._due_s if self.overdue else self._started_s + self.terms.timeout_s

    def _judge(self, result: CheckResult, now_s: float) -> None:
        if result.healthy:
            self._passes, self._fails = self._passes + 1, 0
            if self.state is HealthState.DOWN and self._passes < self.terms.rise:
                reason = f"passes again, {self._passes} of {self.terms.rise} times in a row"
                self._become(HealthState.DOWN, reason, result, now_s)
            else:
                state = HealthState.DEGRADED if result.degraded else HealthState.UP
                self._become(state, result.reason, result, now_s)
            return
        self._passes, self._fails = 0, self._fails + 1
        if self.state in {HealthState.UP, HealthState.DEGRADED} and self._fails < self.terms.fall:
            reason = f"failed {self._fails} of {self.terms.fall} times in a row: {result.reason}"
            self._become(HealthState.DEGRADED, reason, result, now_s)
        else:
            self._become(HealthState.DOWN, result.reason, result, now_s)

    def _become(self, state: HealthState, reason: str, result: CheckResult, now_s: float) -> None:
        if state is not self.state:
            self.since_s = now_s
        self.state, self.reason, self.result = state, reason, result
        self.judged_s = now_s
