import threading
from collections.abc import Callable

import pytest
from tests.core.health.tower import JournalPolicy, MakeTower, SteeredCheck

from lmcache_core import HealthCheck, HealthState


def failing(policy: str = "journal", **how: object) -> SteeredCheck:
    return SteeredCheck(run=lambda: False, policy=policy, **how)


def passes(check: SteeredCheck) -> None:
    check.run = lambda: True


def fails(check: SteeredCheck) -> None:
    check.run = lambda: False


def await_runs(check: SteeredCheck, count: int = 3) -> None:
    for _ in range(count):
        check.await_run()


def test_a_policy_that_keeps_serving_keeps_the_gate_open(tower: MakeTower) -> None:
    one = tower(failing()).start()
    report = one.monitor.report()

    assert (report.healthy, report.state) == (True, HealthState.DEGRADED)
    assert report.reason == "check 'steered' fails: check() returned False; policy journal"
    assert report.checks[0].engaged


def test_it_is_engaged_once_and_released_once(tower: MakeTower) -> None:
    check = failing()
    one = tower(check).start()
    await_runs(check)
    passes(check)
    one.await_report(lambda report: report.state is HealthState.UP)
    await_runs(check)
    one.monitor.stop()

    assert one.journal.journal == ["engage steered", "release steered"]


def test_the_gate_never_closes_around_an_engagement(tower: MakeTower) -> None:
    check = SteeredCheck(policy="journal", interval=0.002)
    one = tower(check).start()
    seen_closed = threading.Event()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if not one.monitor.report().healthy:
                seen_closed.set()

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        fails(check)
        one.await_report(lambda report: report.state is HealthState.DEGRADED)
        one.forget()
        passes(check)
        one.await_report(lambda report: report.state is HealthState.UP)
        one.forget()
    done.set()
    reader.join()

    assert not seen_closed.is_set()


def test_an_engagement_that_raises_closes_the_gate_and_is_tried_again(tower: MakeTower) -> None:
    one = tower(SteeredCheck("other"), check := failing())
    one.journal.broken.add("engage")
    one.start()
    report = one.monitor.report()
    one.journal.broken.clear()
    one.await_report(lambda report: report.healthy)

    assert report.reason == (
        "check 'steered' fails: check() returned False; "
        "fallback policy 'journal' failed with RuntimeError: cannot engage"
    )
    assert one.rig.metrics.registry.get_sample_value("lmcache:check_errors_total", {"check": check.name()}) >= 1


def test_a_release_that_raises_closes_the_gate_and_is_tried_again(tower: MakeTower) -> None:
    check = failing()
    one = tower(check).start()
    one.journal.broken.add("release")
    passes(check)
    report = one.await_report(lambda report: report.state is HealthState.DOWN)
    one.journal.broken.clear()
    one.await_report(lambda report: report.state is HealthState.UP)

    assert report.reason == (
        "check 'steered' is up: fallback policy 'journal' failed with RuntimeError: cannot release"
    )
    assert one.journal.journal == ["engage steered", "release steered"]


def test_half_an_engagement_is_released_as_well(tower: MakeTower) -> None:
    check = failing()
    one = tower(check)
    one.journal.broken.add("engage")
    one.start()
    passes(check)
    one.await_report(lambda report: report.state is HealthState.UP)

    assert one.journal.journal == ["release steered"]


def test_an_exception_of_a_policy_does_not_end_the_monitor(tower: MakeTower) -> None:
    check = failing()
    one = tower(check)
    one.journal.broken.add("engage")
    one.start()
    await_runs(check)

    assert one.monitor.is_running


def test_the_policy_is_read_each_round(tower: MakeTower) -> None:
    check = failing()
    one = tower(check).start()
    check.terms["policy"] = "recompute"
    one.await_report(lambda report: report.state is HealthState.DOWN)
    one.forget()
    check.terms["policy"] = "journal"
    one.await_report(lambda report: report.healthy)

    assert one.journal.journal == ["engage steered", "release steered", "engage steered"]


def test_a_check_that_is_skipped_lets_its_policy_go(tower: MakeTower) -> None:
    check = failing()
    one = tower(check).start()
    check.terms["skip"] = True
    one.await_report(lambda report: report.state is HealthState.UP)

    assert one.journal.journal == ["engage steered", "release steered"]


def test_checks_are_answered_each_by_its_own_policy(tower: MakeTower) -> None:
    one = tower(failing("recompute"), SteeredCheck("other", run=lambda: False, policy="journal")).start()

    assert not one.monitor.is_healthy()
    assert one.journal.journal == ["engage other"]


class ObjectingPolicy(JournalPolicy):
    """Says what a test wants when it is asked at start-up."""

    def __init__(self, say: Callable[[], str | None]) -> None:
        super().__init__()
        self._say = say

    def objection(self, check: HealthCheck) -> str | None:
        del check
        return self._say()


def no_licence() -> str:
    raise RuntimeError("no licence")


def test_a_policy_whose_objection_raises_is_used_and_that_is_said(
    tower: MakeTower, caplog: pytest.LogCaptureFixture
) -> None:
    one = tower(failing(), policies={"journal": ObjectingPolicy(no_licence)}).start()

    assert one.monitor.report().checks[0].engaged
    assert caplog.messages[0] == (
        "fallback policy 'journal' is used unasked: objection(steered) raised RuntimeError: no licence"
    )


def test_a_policy_whose_objection_hangs_does_not_stop_the_start(
    tower: MakeTower, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    policy = ObjectingPolicy(lambda: "late" if go_on.wait(30) else None)
    one = tower(failing(), policies={"journal": policy}, limit_s=0.05).start()
    go_on.set()

    assert one.monitor.report().checks[0].engaged
    assert caplog.messages[0].startswith(
        "fallback policy 'journal' is used unasked: objection(steered) is still running after 0.05 s (in "
    )
    assert one.metrics.registry.get_sample_value("lmcache:check_errors_total", {"check": "steered"}) == 1


def test_a_policy_whose_objection_hangs_is_waited_for_once(tower: MakeTower, caplog: pytest.LogCaptureFixture) -> None:
    go_on, asked = threading.Event(), threading.Semaphore(0)

    def hang() -> str:
        asked.release()
        return str(go_on.wait(30))

    checks = [SteeredCheck(name, policy="journal") for name in ("a", "b", "c")]
    made = tower(*checks, policies={"journal": ObjectingPolicy(hang)}, limit_s=0.05)
    go_on.set()

    assert asked.acquire(timeout=30)
    assert not asked.acquire(blocking=False)
    unasked = "is not called, as an earlier call is still running"
    assert caplog.messages[1:] == [
        f"fallback policy 'journal' is used unasked: objection({name}) {unasked}" for name in ("b", "c")
    ]
    errors = [
        made.metrics.registry.get_sample_value("lmcache:check_errors_total", {"check": check.name()})
        for check in checks
    ]
    assert errors == [1, 1, 1]
