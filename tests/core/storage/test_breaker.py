import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lmcache_core.storage.breaker import BreakerReport, BreakerState, BreakerTerms, CircuitBreaker, Outcome, Permit

TERMS = BreakerTerms(
    failures=3, slow_call_s=1.0, window_s=10.0, open_s=1.0, max_open_s=8.0, trials=2, ramp_s=5.0, trial_s=20.0
)


class Bench:
    """A breaker on a clock of its own, without jitter."""

    def __init__(self, terms: BreakerTerms = TERMS) -> None:
        self.now_s = 100.0
        self.changes: list[BreakerReport] = []
        self.breaker = CircuitBreaker(terms, self.changes.append, clock=lambda: self.now_s, jitter=lambda: 0.5)

    def call(self, outcome: Outcome, took_s: float = 0.0) -> bool:
        permit = self.breaker.admit()
        if permit is None:
            return False
        self.now_s += took_s
        self.breaker.report(permit, outcome)
        return True

    @property
    def state(self) -> BreakerState:
        return self.breaker.snapshot().state


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_closed_breaker_admits_everything(bench: Bench) -> None:
    assert all(bench.call(Outcome.PASSED) for _ in range(100))


def test_first_time_out_opens(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)

    assert bench.state is BreakerState.OPEN
    assert bench.breaker.snapshot().reason == "a call got no answer before its deadline"


def test_failures_in_a_row_open(bench: Bench) -> None:
    for _ in range(2):
        bench.call(Outcome.FAILED)
    before = bench.state
    bench.call(Outcome.FAILED)

    assert (before, bench.state) == (BreakerState.CLOSED, BreakerState.OPEN)
    assert bench.breaker.snapshot().reason == "3 calls in a row failed"


def test_a_pass_ends_the_row(bench: Bench) -> None:
    for outcome in (Outcome.FAILED, Outcome.FAILED, Outcome.PASSED, Outcome.FAILED, Outcome.FAILED):
        bench.call(outcome)

    assert bench.state is BreakerState.CLOSED


def test_half_of_the_calls_in_the_window_open(bench: Bench) -> None:
    for _ in range(5):
        bench.call(Outcome.PASSED)
        bench.call(Outcome.FAILED)

    assert bench.breaker.snapshot().reason == "5 of 10 calls failed or were slow"


def test_slow_calls_open(bench: Bench) -> None:
    bench = Bench(BreakerTerms(slow_call_s=1.0, window_s=100.0))
    for _ in range(10):
        bench.call(Outcome.PASSED, took_s=1.5)

    assert bench.breaker.snapshot().reason == "10 of 10 calls failed or were slow"


def test_what_left_the_window_is_forgotten(bench: Bench) -> None:
    for _ in range(4):
        bench.call(Outcome.FAILED)
        bench.call(Outcome.PASSED)
    bench.now_s += 11.0
    for _ in range(5):
        bench.call(Outcome.PASSED)

    assert bench.breaker.snapshot().bad_calls == 0


def test_open_breaker_admits_nothing_until_the_pause_is_over(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    refused = bench.breaker.admit()
    bench.now_s += 1.0

    assert refused is None
    assert bench.breaker.admit() is not None
    assert bench.state is BreakerState.HALF_OPEN


def test_exactly_one_trial_is_in_flight_under_fifty_callers(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    gate = threading.Barrier(50)
    permits: list[Permit | None] = []

    def ask() -> None:
        gate.wait()
        permits.append(bench.breaker.admit())

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(permit is not None for permit in permits) == 1


def test_trials_then_ramp_then_closed(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.call(Outcome.PASSED)
    bench.call(Outcome.PASSED)
    ramp = bench.state
    bench.now_s += 5.0
    bench.call(Outcome.PASSED)

    assert (ramp, bench.state) == (BreakerState.RAMP, BreakerState.CLOSED)


def test_ramp_admits_a_growing_share(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.call(Outcome.PASSED)
    bench.call(Outcome.PASSED)

    admitted = []
    for _ in range(4):
        admitted.append(sum(bench.call(Outcome.PASSED) for _ in range(100)))
        bench.now_s += 1.0

    assert admitted == pytest.approx([10, 20, 40, 60], abs=1)


def test_failure_during_the_ramp_opens_again_for_longer(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.call(Outcome.PASSED)
    bench.call(Outcome.PASSED)
    bench.call(Outcome.FAILED)

    report = bench.breaker.snapshot()
    assert (report.state, report.next_trial_s, report.reason) == (
        BreakerState.OPEN,
        2.0,
        "a call failed on the way back",
    )


def test_pause_doubles_up_to_its_cap(bench: Bench) -> None:
    pauses = []
    for _ in range(6):
        bench.call(Outcome.TIMED_OUT)
        pauses.append(bench.breaker.snapshot().next_trial_s)
        bench.now_s += pauses[-1]

    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_pause_decays_while_closed(bench: Bench) -> None:
    for _ in range(4):
        bench.call(Outcome.TIMED_OUT)
        bench.now_s += bench.breaker.snapshot().next_trial_s
    bench.call(Outcome.PASSED)
    bench.call(Outcome.PASSED)
    bench.now_s += 5.0
    bench.call(Outcome.PASSED)
    bench.now_s += 100.0
    bench.call(Outcome.TIMED_OUT)

    assert bench.breaker.snapshot().next_trial_s == 1.0


def test_probe_that_passes_brings_the_trial_forward(bench: Bench) -> None:
    for _ in range(3):
        bench.call(Outcome.TIMED_OUT)
        bench.now_s += bench.breaker.snapshot().next_trial_s
    bench.call(Outcome.TIMED_OUT)

    bench.breaker.probe_passed()

    assert bench.breaker.admit() is not None


def test_outcome_from_before_the_opening_is_ignored(bench: Bench) -> None:
    late = bench.breaker.admit()
    assert late is not None
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.call(Outcome.PASSED)

    bench.breaker.report(late, Outcome.TIMED_OUT)

    assert bench.state is BreakerState.HALF_OPEN


def test_abandoned_trial_makes_room_for_the_next(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.call(Outcome.ABANDONED)

    assert bench.breaker.admit() is not None


def test_trial_that_never_reports_does_not_shut_others_out_for_good(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.breaker.admit()
    early = bench.breaker.admit()
    bench.now_s += 20.0

    assert early is None
    assert bench.breaker.admit() is not None


def test_trial_that_passes_late_does_not_lead_back_to_the_ramp(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    late = bench.breaker.admit()
    assert late is not None
    bench.now_s += 20.0
    bench.call(Outcome.PASSED)
    bench.call(Outcome.PASSED)
    bench.now_s += 5.0
    bench.call(Outcome.PASSED)

    bench.breaker.report(late, Outcome.PASSED)

    assert bench.state is BreakerState.CLOSED


def test_changes_are_told(bench: Bench) -> None:
    bench.call(Outcome.TIMED_OUT)
    bench.now_s += 1.0
    bench.call(Outcome.PASSED)
    bench.call(Outcome.PASSED)
    bench.now_s += 5.0
    bench.call(Outcome.PASSED)

    assert [change.state.value for change in bench.changes] == ["open", "half_open", "ramp", "closed"]


LEGAL = {
    ("closed", "open"),
    ("open", "half_open"),
    ("half_open", "open"),
    ("half_open", "ramp"),
    ("ramp", "open"),
    ("ramp", "closed"),
}


class Watched(CircuitBreaker):
    """Lets a test in where another thread could come: when the generation is read, and when it has been set."""

    when_read: Callable[[], object] = staticmethod(lambda: None)
    when_set: Callable[[], object] = staticmethod(lambda: None)

    @property
    def _generation(self) -> int:
        when, self.when_read = self.when_read, lambda: None
        when()
        return self.number

    @_generation.setter
    def _generation(self, number: int) -> None:
        self.number = number
        self.when_set()


def test_a_call_let_in_while_the_breaker_opens_is_of_before_the_opening() -> None:
    breaker = Watched(TERMS)
    other = breaker.admit()
    assert other is not None
    breaker.when_read = lambda: breaker.report(other, Outcome.TIMED_OUT)
    late = breaker.admit()
    if late is not None:
        breaker.report(late, Outcome.TIMED_OUT)

    assert breaker.snapshot().opened == 1


def test_nobody_is_let_in_with_the_number_of_the_opening() -> None:
    breaker = Watched(TERMS)
    permit = breaker.admit()
    assert permit is not None
    seen: list[BreakerState] = []
    breaker.when_set = lambda: seen.append(breaker._state)
    breaker.report(permit, Outcome.TIMED_OUT)

    assert seen == [BreakerState.OPEN]


def test_changes_are_told_in_order_each_as_it_was(bench: Bench) -> None:
    """Another thread may change more while one tells: a gauge set out of order would stay wrong."""
    told: list[BreakerState] = []

    def listen(report: BreakerReport) -> None:
        if report.state is BreakerState.OPEN:
            bench.now_s += TERMS.open_s
            bench.breaker.admit()
        told.append(report.state)

    bench.breaker._on_change = listen
    bench.call(Outcome.TIMED_OUT)

    assert told == [BreakerState.OPEN, BreakerState.HALF_OPEN]


class BreakerMachine(RuleBasedStateMachine):
    """Whatever happens: legal changes only, one trial in flight at most, never open for longer than the cap."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.permits: list[Permit] = []

    @rule()
    def admit(self) -> None:
        permit = self.bench.breaker.admit()
        if permit is not None:
            self.permits.append(permit)

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def report(self, data: st.DataObject, outcome: Outcome) -> None:
        place = data.draw(st.integers(0, len(self.permits) - 1))
        self.bench.breaker.report(self.permits.pop(place), outcome)

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.bench.now_s += seconds

    @rule()
    def probe(self) -> None:
        self.bench.breaker.probe_passed()

    @invariant()
    def changes_are_legal(self) -> None:
        states = ["closed", *(change.state.value for change in self.bench.changes)]
        assert set(pairwise(states)) <= LEGAL

    @invariant()
    def never_open_for_longer_than_the_cap(self) -> None:
        assert self.bench.breaker.snapshot().next_trial_s <= TERMS.max_open_s + 1e-9

    def teardown(self) -> None:
        self.bench.now_s += TERMS.max_open_s + TERMS.trial_s
        assert any(self.bench.breaker.admit() for _ in range(10))


TestBreaker = BreakerMachine.TestCase
