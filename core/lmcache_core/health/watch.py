"""One check's schedule and verdict."""

from __future__ import annotations

import random
from collections.abc import Callable

from lmcache_core.contracts.health import CheckResult, HealthCheck, HealthState
from lmcache_core.contracts.report import CheckReport
from lmcache_core.errors import PluginError
from lmcache_core.health.ladder import Ladder
from lmcache_core.health.rule import describe_rule
from lmcache_core.health.run import Outcome
from lmcache_core.health.terms import CheckTerms, TermReader

_WAKE_GAP_S = 0.1  # live errors come in floods; each may start a run at most this often
_WAKE_GAPS_PER_INTERVAL = 10
_INTERVALS_OF_BELIEF = 3

_NO_ANSWER = "no answer within {timeout:g} s"
_STILL_RUNNING = "no answer within {timeout:g} s; still running after {elapsed:.0f} s"


class CheckWatch:
    """Decides when a check is due, and what its runs come to under rise and fall.

    Knows no threads and no clock: only the monitor's thread calls it, with the time. A check that
    hangs is failed once its timeout is over, and again each interval, but never started twice.

    `state` is what its own runs came to. Around that stand two things that others decide: `held_back`,
    while a check that it depends on is down, and `maintenance`, while an operator holds its backend out.

    Args:
        plugin: Who declared the check.
        origin: The plugin's distribution and version.
        check: The check.
        name: Its name, read once.
        reader: Reads its terms at each run.
        terms: Its terms at start-up.
        now_s: The time; the first run is due at once, or after the initial delay.
        jitter: Gives a number from 0 to 1.
    """

    def __init__(
        self,
        *,
        plugin: str,
        origin: str,
        check: HealthCheck,
        name: str,
        reader: TermReader,
        terms: CheckTerms,
        now_s: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.plugin, self.origin = plugin, origin
        self.check = check
        self.name = name
        self.reader = reader
        self.terms = terms
        self.state = HealthState.UNKNOWN
        self.reason = "has not run yet" if not terms.initial_delay_s else "has not run yet: its first run is delayed"
        self.result = CheckResult(healthy=False)
        self.since_s = now_s
        self.judged_s: float | None = None
        self.running = False
        self.overdue = False
        self.irrecoverable = False
        self.engaged_policy: str | None = None
        self.engaged = False
        self.policy_problem = ""
        self.policy_note = ""
        self.ladder = Ladder()
        self.held_back = self.maintenance = self.waits_for = ""
        self.depends_on: tuple[CheckWatch, ...] = ()
        self._rule = describe_rule(terms)
        self._jitter = jitter
        self._early = jitter()
        self._turned_s = now_s
        self._started_s = float("-inf")
        self._due_s = now_s + terms.initial_delay_s
        self._requested = False
        self._passes = self._fails = 0

    def error(self, reason: str) -> PluginError:
        """Say what is wrong with it, as an error of its plugin's."""
        return PluginError(plugin=self.plugin, origin=self.origin, reason=reason)

    @property
    def failing(self) -> bool:
        """Whether its own runs failed."""
        return self.state is HealthState.DOWN

    @property
    def answered(self) -> bool:
        """Whether a policy has to answer for it."""
        return self.failing and self.terms.enforce and not self.maintenance

    @property
    def holds_up_start(self) -> bool:
        """Whether the first round has to wait for its first verdict."""
        return self.judged_s is None and self.terms.enforce and not self.terms.initial_delay_s

    def maintain(self, maintenance: str, now_s: float) -> None:
        """Take note of the operators that hold its backend out; ``""`` for none."""
        if bool(maintenance) != bool(self.maintenance):
            self._turned_s = now_s
        self.maintenance = maintenance

    def look_around(self, now_s: float) -> None:
        """Take note of the checks it depends on; it runs at once when none of them is down any more."""
        before = self.held_back
        down = next((other.name for other in self.depends_on if other.answered), "")
        self.waits_for = next((other.name for other in self.depends_on if other.holds_up_start), "")
        self.held_back = f"not run while check {down!r} is down" if down else ""
        if self.held_back and not self.irrecoverable:
            self._passes = self._fails = 0
            self._become(HealthState.UNKNOWN, self.held_back, CheckResult(healthy=False), now_s)
        elif before:
            self._due_s = min(self._due_s, now_s)

    def request(self) -> None:
        """Run it soon, or once more if it is running: what it is measuring may be over."""
        self._requested = True

    def is_due(self, now_s: float) -> bool:
        """Tell whether to start a run now."""
        free = not (self.running or self.irrecoverable or self.held_back or self.waits_for)
        return free and now_s >= self._start_s()

    def start(self, now_s: float) -> None:
        """Note that a run has been started."""
        self.running = True
        self.overdue = False
        self._requested = False
        self._started_s = now_s
        self._early = self._jitter()
        self._due_s = now_s + self._pause_s()

    def tick(self, now_s: float) -> bool:
        """Judge a run that hangs; tell whether it did."""
        if not self.running or now_s < self._tick_s():
            return False
        if self._due_s <= now_s:
            self._due_s = now_s + self.terms.interval_s
        pattern = _STILL_RUNNING if self.overdue else _NO_ANSWER
        self.overdue = True
        if self.held_back:
            return False
        reason = pattern.format(timeout=self.terms.timeout_s, elapsed=now_s - self._started_s)
        self._judge(CheckResult(healthy=False, reason=reason), now_s)
        return True

    def finish(self, outcome: Outcome, now_s: float) -> None:
        """Take the outcome of the run that was started; one that came too late was judged already."""
        late = self.overdue
        self.running = False
        self.overdue = False
        if outcome.terms is not None and outcome.terms != self.terms:
            self.terms = outcome.terms
            self._rule = describe_rule(outcome.terms)
        self._take(outcome, now_s, late=late)
        begun_s = now_s if late else self._started_s  # after a hang, a pause
        self._due_s = min(self._due_s, max(begun_s + self._pause_s(), now_s))

    def _take(self, outcome: Outcome, now_s: float, *, late: bool) -> None:
        if outcome.irrecoverable:
            self.irrecoverable = True
            self._become(HealthState.DOWN, outcome.result.reason, outcome.result, now_s)
        elif late or self.held_back:
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
        move_s = self.ladder.next_move_s(self.terms.ladder, self.terms.ladder_s) if self.answered else float("inf")
        if self.running:
            return min(move_s, self._tick_s())
        return move_s if self.held_back or self.waits_for else min(move_s, self._start_s())

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
            state=HealthState.MAINTENANCE if self.maintenance else self.state,
            reason=self._shown_reason(),
            policy=self.engaged_policy or self.terms.ladder[0],
            ladder=self.terms.ladder if len(self.terms.ladder) > 1 else (),
            engaged=self.engaged,
            enforced=self.terms.enforce,
            group=self.terms.group,
            since_s=max(0.0, now_s - (self._turned_s if self.maintenance else max(self.since_s, self._turned_s))),
            age_s=None if self.judged_s is None else max(0.0, now_s - self.judged_s),
            next_run_s=0.0 if self.running else max(0.0, self._start_s() - now_s),
            details=self.result.details,
            rule=self._rule,
            passes=self._passes,
            fails=self._fails,
        )

    def _shown_reason(self) -> str:
        parts = [self.reason]
        if self.maintenance:
            own = f"the check itself is {self.state.value}"
            parts = [self.maintenance, f"{own}: {self.reason}" if self.reason else own]
        elif self.failing and not self.terms.enforce:
            parts = [f"{self.reason} (observed only, stops nothing)"]
        return "; ".join(text for text in (*parts, self.policy_note, self.policy_problem) if text)

    def _start_s(self) -> float:
        if not self._requested or self._started_s == float("-inf"):  # an initial delay is kept, whatever happens
            return self._due_s
        gap_s = min(_WAKE_GAP_S, self.terms.interval_s / _WAKE_GAPS_PER_INTERVAL)
        return min(self._due_s, self._started_s + gap_s)

    def _pause_s(self) -> float:
        """From one start to the next: shorter while it fails or wavers, and a little early at random."""
        wavers = self.failing or self._fails > 0
        whole_s = self.terms.fast_interval_s if wavers else self.terms.interval_s
        return whole_s * (1.0 - self.terms.jitter * self._early)

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
