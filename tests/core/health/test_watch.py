import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Options

from lmcache_core import CheckResult, HealthState, IrrecoverableException
from lmcache_core.health.run import Outcome
from lmcache_core.health.terms import CheckTerms, TermReader
from lmcache_core.health.watch import CheckWatch

TERMS = CheckTerms(interval_s=10.0, timeout_s=3.0, ladder=("recompute",), fast_interval_s=2.0)


def a_watch(**terms: object) -> CheckWatch:
    changed = dataclasses.replace(TERMS, **terms)  # type: ignore[arg-type]
    return CheckWatch(
        plugin="acme",
        origin="acme 1.0",
        check=SteeredCheck(),
        name="steered",
        reader=TermReader(Options()),
        terms=changed,
        now_s=0.0,
    )


def outcome(watch: CheckWatch, healthy: bool = True, **how: object) -> Outcome:
    result = CheckResult(healthy=healthy, reason="" if healthy else "refused", degraded=bool(how.pop("degraded", 0)))
    return Outcome(result=result, terms=watch.terms, **how)  # type: ignore[arg-type]


def run(watch: CheckWatch, now_s: float, healthy: bool = True, **how: object) -> HealthState:
    watch.start(now_s)
    watch.finish(outcome(watch, healthy, **how), now_s)
    return watch.state


def test_is_unknown_and_due_at_first() -> None:
    watch = a_watch()

    assert (watch.state, watch.is_due(0.0), watch.report(0.0).age_s) == (HealthState.UNKNOWN, True, None)


def test_one_passing_run_makes_it_up() -> None:
    assert run(a_watch(rise=3), 0.0) is HealthState.UP


def test_one_failing_first_run_makes_it_down() -> None:
    assert run(a_watch(fall=3), 0.0, healthy=False) is HealthState.DOWN


def test_a_reservation_makes_it_degraded() -> None:
    assert run(a_watch(), 0.0, degraded=True) is HealthState.DEGRADED


def test_is_due_again_an_interval_after_the_last_start() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.finish(outcome(watch), 2.0)

    assert (watch.is_due(9.9), watch.is_due(10.0), watch.report(4.0).next_run_s) == (False, True, 6.0)


def test_jitter_brings_a_run_early_and_never_late() -> None:
    watch = a_watch(jitter=0.2)
    watch._jitter = lambda: 1.0
    run(watch, 0.0)
    most = watch.report(0.0).next_run_s
    watch._jitter = lambda: 0.0
    run(watch, 8.0)

    assert (most, watch.report(8.0).next_run_s) == (8.0, 10.0)


def test_it_is_asked_more_often_while_it_fails_or_wavers() -> None:
    watch = a_watch(fall=2, rise=2)
    pauses = []
    for now_s, healthy in ((0.0, True), (10.0, False), (20.0, False), (30.0, True), (40.0, True)):
        run(watch, now_s, healthy=healthy)
        pauses.append(watch.report(now_s).next_run_s)

    assert pauses == [10.0, 2.0, 2.0, 2.0, 2.0]  # the run that ends a failure was still planned while it lasted


def test_an_initial_delay_is_kept_whatever_live_traffic_says() -> None:
    watch = a_watch(initial_delay_s=60.0)
    watch.request()

    assert (watch.is_due(59.9), watch.is_due(60.0), watch.holds_up_start) == (False, True, False)


def test_fall_needs_failures_in_a_row() -> None:
    watch = a_watch(fall=2)
    run(watch, 0.0)
    first = (run(watch, 10.0, healthy=False), watch.reason)
    run(watch, 20.0)
    again = run(watch, 30.0, healthy=False)

    assert first == (HealthState.DEGRADED, "failed 1 of 2 times in a row: refused")
    assert again is HealthState.DEGRADED
    assert run(watch, 40.0, healthy=False) is HealthState.DOWN


def test_rise_needs_passes_in_a_row() -> None:
    watch = a_watch(rise=2)
    run(watch, 0.0, healthy=False)
    first = (run(watch, 10.0), watch.reason)

    assert first == (HealthState.DOWN, "passes again, 1 of 2 times in a row")
    assert run(watch, 20.0) is HealthState.UP


def test_a_run_that_hangs_is_failed_at_its_timeout() -> None:
    watch = a_watch()
    watch.start(0.0)
    early, late = watch.tick(2.9), watch.tick(3.0)

    assert (early, late) == (False, True)
    assert (watch.state, watch.reason) == (HealthState.DOWN, "no answer within 3 s")


def test_a_run_that_hangs_is_never_started_twice() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.tick(3.0)
    watch.request()

    assert not any(watch.is_due(now_s) for now_s in (3.0, 10.0, 1000.0))


def test_a_run_that_hangs_is_failed_again_each_interval() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.tick(3.0)
    judged = [now_s for now_s in range(4, 41) if watch.tick(float(now_s))]

    assert judged == [10, 20, 30, 40]
    assert watch.reason == "no answer within 3 s; still running after 40 s"
    assert watch.report(40.0).age_s == 0.0


def test_a_hang_longer_than_the_interval_counts_once_at_its_timeout() -> None:
    watch = a_watch(interval_s=1.0, fall=2)
    run(watch, 0.0)
    watch.start(1.0)

    assert (watch.tick(4.0), watch.tick(4.0), watch.state) == (True, False, HealthState.DEGRADED)


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.tick(3.0)
    watch.finish(outcome(watch), 5.0)

    assert watch.state is HealthState.DOWN
    assert (watch.is_due(6.9), watch.is_due(7.0)) == (False, True)


def test_a_request_makes_it_due() -> None:
    watch = a_watch()
    run(watch, 0.0)
    watch.request()

    assert watch.is_due(1.0)


def test_requests_start_at_most_one_run_in_a_tenth_of_a_second() -> None:
    watch = a_watch()
    runs = 0
    for millisecond in range(1000):
        watch.request()
        if watch.is_due(millisecond / 1000):
            run(watch, millisecond / 1000)
            runs += 1

    assert runs == 10


def test_a_request_during_a_run_asks_for_one_more() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.request()
    watch.finish(outcome(watch), 1.0)

    assert watch.is_due(1.0)


def test_a_skipped_round_is_shown_and_forgets_the_streak() -> None:
    watch = a_watch(fall=2)
    run(watch, 0.0)
    run(watch, 10.0, healthy=False)
    skipped = run(watch, 20.0, skipped=True)

    assert skipped is HealthState.SKIPPED
    assert watch.report(20.0).age_s == 0.0


def test_an_irrecoverable_check_is_down_for_ever() -> None:
    watch = a_watch()
    run(watch, 0.0, healthy=False, error=IrrecoverableException("gone"))

    assert watch.state is HealthState.DOWN
    assert not watch.is_due(1e9)
    assert watch.next_event_s() == float("inf")
    assert watch.belief_s == float("inf")


def test_an_irrecoverable_answer_counts_even_when_it_is_late() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.tick(3.0)
    watch.finish(outcome(watch, healthy=False, error=IrrecoverableException("gone")), 5.0)

    assert watch.irrecoverable


def test_terms_are_taken_from_each_run() -> None:
    watch = a_watch()
    watch.start(0.0)
    watch.finish(Outcome(result=CheckResult(healthy=True), terms=dataclasses.replace(TERMS, interval_s=2.0)), 0.5)

    assert (watch.terms.interval_s, watch.is_due(2.0)) == (2.0, True)


def test_since_is_kept_while_the_state_stays() -> None:
    watch = a_watch()
    for now_s in (5.0, 15.0, 25.0):
        run(watch, now_s)

    assert watch.report(30.0).since_s == 25.0


class WatchMachine(RuleBasedStateMachine):
    """Random runs, hangs and requests against a simple model."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.watch = a_watch(rise=2, fall=3)
        self.fails = 0
        self.passes = 0
        self.was: HealthState = HealthState.UNKNOWN
        self.started = 0
        self.finished = 0

    @rule(step_s=st.floats(min_value=0.0, max_value=20.0))
    def wait(self, step_s: float) -> None:
        self.now_s += step_s
        before = self.watch.overdue
        if self.watch.tick(self.now_s):
            assert self.watch.running
            self.note(healthy=False)
        elif not before:
            assert not self.watch.overdue

    @rule()
    def request(self) -> None:
        self.watch.request()

    @precondition(lambda self: self.watch.is_due(self.now_s))
    @rule()
    def start(self) -> None:
        assert self.started == self.finished, "started twice"
        self.watch.start(self.now_s)
        self.started += 1

    @precondition(lambda self: self.watch.running)
    @rule(healthy=st.booleans())
    def finish(self, healthy: bool) -> None:
        late = self.watch.overdue
        self.watch.finish(outcome(self.watch, healthy), self.now_s)
        self.finished += 1
        if not late:
            self.note(healthy=healthy)

    def note(self, *, healthy: bool) -> None:
        self.passes, self.fails = (self.passes + 1, 0) if healthy else (0, self.fails + 1)
        if self.was is HealthState.UNKNOWN:
            self.was = HealthState.UP if healthy else HealthState.DOWN
        elif healthy:
            self.was = HealthState.DOWN if self.was is HealthState.DOWN and self.passes < 2 else HealthState.UP
        else:
            serving = self.was in {HealthState.UP, HealthState.DEGRADED}
            self.was = HealthState.DEGRADED if serving and self.fails < 3 else HealthState.DOWN

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.watch.state is self.was

    @invariant()
    def something_is_always_to_come(self) -> None:
        assert self.watch.next_event_s() < self.now_s + 31.0

    @invariant()
    def a_running_check_is_never_due(self) -> None:
        assert not (self.watch.running and self.watch.is_due(self.now_s + 1e6))


TestWatchMachine = WatchMachine.TestCase
TestWatchMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("elapsed_s", [0.0, 5.0])
def test_a_report_moves_with_the_clock(elapsed_s: float) -> None:
    watch = a_watch()
    run(watch, 0.0)
    report = watch.report(elapsed_s)

    assert (report.age_s, report.since_s, report.next_run_s) == (elapsed_s, elapsed_s, 10.0 - elapsed_s)
