"""A policy that does not answer in time counts as failed until it does, and stops nobody else."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, Watchtower, state_of
from tests.engine_calls import until

from lmcache_core import FallbackPolicy, HealthCheck, HealthState, StorageControl
from lmcache_core.health.policy_calls import PolicyCalls
from lmcache_plugins.fallback.policy import RecomputePolicy

BACKEND = "RemoteBackend-0"
LIMIT_S = 0.05
PLACE = r"\(in \w+, [\w.]+ line \d+\)"


class StuckPolicy(FallbackPolicy):
    """Throws a real switch, behind a valve for each of its calls; notes what it does."""

    name: ClassVar[str] = "stuck"
    keeps_serving: ClassVar[bool] = True

    def __init__(self) -> None:
        self.valves = {"engage": threading.Event(), "release": threading.Event()}
        self.journal: list[str] = []
        self.begun: list[str] = []
        self.at_once = 0
        self.broken: set[str] = set()

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        self._pass("engage", check)
        storage.set_backend_bypass(BACKEND, True, owner=check.name())

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        self._pass("release", check)
        storage.set_backend_bypass(BACKEND, False, owner=check.name())

    def open(self, *actions: str) -> None:
        for action in actions or self.valves:
            self.valves[action].set()

    def _pass(self, action: str, check: HealthCheck) -> None:
        self.begun.append(f"{action} {check.name()}")
        assert self.begun[:-1] == self.journal, "two calls at once"
        self.valves[action].wait(60)
        self.journal.append(f"{action} {check.name()}")
        if action in self.broken:
            raise RuntimeError(f"cannot {action}")


@pytest.fixture
def policy() -> Iterator[StuckPolicy]:
    policy = StuckPolicy()
    yield policy
    policy.open()


def failing(name: str = "steered", **how: object) -> SteeredCheck:
    return SteeredCheck(name, lambda: False, policy="stuck", **how)


def watch(tower: MakeTower, policy: StuckPolicy, *checks: HealthCheck) -> Watchtower:
    return tower(*checks, policies={"stuck": policy, "recompute": RecomputePolicy()}, limit_s=LIMIT_S).start()


def passes(check: SteeredCheck) -> None:
    check.run = lambda: True


def await_calm(one: Watchtower) -> None:
    """The first round may have been shown before the check was asked."""
    assert until(one.monitor.is_healthy), one.monitor.report()


def test_one_that_hangs_closes_the_gate_and_says_where(tower: MakeTower, policy: StuckPolicy) -> None:
    one = watch(tower, policy, failing())
    report = one.await_report(lambda report: state_of(report) is HealthState.DOWN)

    assert not report.healthy
    assert not report.checks[0].engaged
    assert re.fullmatch(
        r"check 'steered' fails: check\(\) returned False; fallback policy 'stuck' failed with TimeoutError: "
        rf"engage\(steered\) is still running after {LIMIT_S:g} s {PLACE}",
        report.reason,
    )


def test_the_other_checks_are_judged_all_the_same(tower: MakeTower, policy: StuckPolicy) -> None:
    other = SteeredCheck("other")
    one = watch(tower, policy, failing(), other)
    other.run = lambda: False
    one.await_report(lambda report: state_of(report, "other") is HealthState.DOWN)
    passes(other)
    one.forget()
    one.await_report(lambda report: state_of(report, "other") is HealthState.UP)

    assert policy.begun == ["engage steered"]


def test_it_is_logged_once_and_counted(tower: MakeTower, policy: StuckPolicy, caplog: pytest.LogCaptureFixture) -> None:
    check = failing()
    one = watch(tower, policy, check)
    for _ in range(4):
        check.await_run()

    own = [entry.getMessage() for entry in caplog.records if entry.name == "lmcache_core.health.fallback"]
    assert len(own) == 1
    assert own[0].startswith("health check steered: fallback policy 'stuck' failed with TimeoutError: engage(steered) ")
    assert one.metrics.registry.get_sample_value("lmcache:check_errors_total", {"check": "steered"}) >= 1


def test_one_that_engages_late_is_engaged_then(tower: MakeTower, policy: StuckPolicy) -> None:
    one = watch(tower, policy, failing())
    policy.open()
    report = one.await_report(lambda report: report.healthy)

    assert (report.state, report.checks[0].engaged, report.bypassed) == (
        HealthState.DEGRADED,
        True,
        {BACKEND: ("steered",)},
    )
    assert policy.journal == ["engage steered"]


def test_one_that_engages_when_the_check_passes_again_is_released(tower: MakeTower, policy: StuckPolicy) -> None:
    check = failing()
    one = watch(tower, policy, check)
    passes(check)
    one.await_report(lambda report: state_of(report) is HealthState.UP)
    closed = not one.monitor.is_healthy()
    policy.open()
    await_calm(one)

    assert closed
    assert policy.journal == ["engage steered", "release steered"]
    assert not any(one.storage.bypassed().values())


def test_one_that_hangs_in_release_keeps_the_gate_closed_until_it_returns(
    tower: MakeTower, policy: StuckPolicy
) -> None:
    policy.open("engage")
    check = failing()
    one = watch(tower, policy, check)
    await_calm(one)
    passes(check)
    report = one.await_report(lambda report: state_of(report) is HealthState.UP and not report.healthy)
    policy.open()
    await_calm(one)

    assert "failed with TimeoutError: release(steered) is still running after" in report.reason
    assert policy.journal == ["engage steered", "release steered"]


def test_a_check_that_fails_again_while_it_is_released_is_engaged_after(tower: MakeTower, policy: StuckPolicy) -> None:
    policy.open("engage")
    check = failing()
    one = watch(tower, policy, check)
    await_calm(one)
    passes(check)
    one.await_report(lambda report: state_of(report) is HealthState.UP and not report.healthy)
    one.forget()
    check.run = lambda: False
    one.await_report(lambda report: state_of(report) is HealthState.DOWN)
    policy.open()
    await_calm(one)

    assert policy.journal == ["engage steered", "release steered", "engage steered"]
    assert one.storage.bypassed() == {BACKEND: ("steered",)}


def test_nothing_else_is_asked_of_it_meanwhile(tower: MakeTower, policy: StuckPolicy) -> None:
    one = watch(tower, policy, failing("a"), failing("b"))
    assert until(lambda: "still running" in one.monitor.report().checks[1].reason)
    report = one.monitor.report()
    begun = list(policy.begun)
    policy.open()
    await_calm(one)

    assert begun == ["engage a"]
    assert "failed with TimeoutError: engage(a) is still running after" in report.checks[1].reason
    assert policy.journal == ["engage a", "engage b"]


def test_one_that_raises_late_is_tried_again(tower: MakeTower, policy: StuckPolicy) -> None:
    policy.broken.add("engage")
    one = watch(tower, policy, failing())
    policy.open()
    raised = until(lambda: "failed with RuntimeError: cannot engage" in one.monitor.report().reason)
    closed = not one.monitor.is_healthy()
    policy.broken.clear()
    await_calm(one)

    assert (raised, closed) == (True, True)


def test_that_it_has_returned_is_logged(
    tower: MakeTower, policy: StuckPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    one = watch(tower, policy, failing())
    policy.open()
    await_calm(one)

    assert until(lambda: "fallback policy 'stuck': engage(steered) has returned after all" in caplog.messages)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_hangs_when_no_switch_stays_thrown(seed: int, tower: MakeTower, policy: StuckPolicy) -> None:
    """Calls never overlap either: the policy asserts it."""
    dice = random.Random(seed)
    checks = [SteeredCheck(name, policy="stuck", interval=0.002, fast_interval=0.002) for name in ("a", "b")]
    one = tower(*checks, policies={"stuck": policy}, limit_s=0.005).start()
    for _ in range(40):
        healthy, valve = dice.random() < 0.5, policy.valves[dice.choice(("engage", "release"))]
        check = dice.choice(checks)
        check.run = lambda healthy=healthy: healthy
        (valve.clear if valve.is_set() else valve.set)()
        check.await_run()
    policy.open()
    for check in checks:
        passes(check)

    assert until(lambda: one.monitor.report().state is HealthState.UP), one.monitor.report()
    assert not any(one.storage.bypassed().values())
    assert policy.begun == policy.journal


# -- the calls alone -------------------------------------------------------------------------------------------------


class Slow:
    """Takes longer than anybody waits, each time."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._overdue = threading.Event()
        self._back = threading.Event()
        self.made = PolicyCalls(LIMIT_S, self._back.set)

    def ask(self, action: str, check: str) -> bool:
        """Whether it says that it is done."""
        self._overdue.clear()
        self._back.clear()
        try:
            self.made.call("slow", action, check, lambda: self._work(f"{action} {check}"))
        except TimeoutError:
            self._overdue.set()
            assert self._back.wait(10)
            return False
        return True

    def _work(self, what: str) -> None:
        self.calls.append(what)
        assert self._overdue.wait(10)


def test_a_policy_that_is_always_slow_gets_there_for_every_check() -> None:
    slow = Slow()
    done = [slow.ask("engage", check) for _ in range(2) for check in ("a", "b")]

    assert done == [False, False, True, True]
    assert slow.calls == ["engage a", "engage b"]


def test_what_came_of_another_action_does_not_count() -> None:
    slow = Slow()
    done = [slow.ask(action, "a") for action in ("engage", "release", "release", "engage")]

    assert done == [False, False, True, False]
    assert slow.calls == ["engage a", "release a", "engage a"]


def test_a_built_in_one_needs_no_thread() -> None:
    """Where no more threads can be had, that is when it is needed."""
    seen: list[threading.Thread] = []
    PolicyCalls(LIMIT_S, lambda: None, {"bypass"}).call(
        "bypass", "engage", "check", lambda: seen.append(threading.current_thread())
    )

    assert seen == [threading.current_thread()]
