"""An operator holds a check's backend out."""

from collections.abc import Iterator

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, Watchtower, state_of
from tests.memory_store import Rig

from lmcache_core import HealthState

BACKEND = "RemoteBackend-0"


def hold(one: Watchtower, owner: str = "operator:alice", **sides: bool) -> None:
    one.storage.set_backend_bypass(BACKEND, True, owner=owner, reason="new disks", **sides)
    one.monitor.wake()


def let_go(one: Watchtower, owner: str = "operator:alice") -> None:
    one.storage.set_backend_bypass(BACKEND, False, owner=owner)
    one.monitor.wake()


@pytest.fixture
def cold() -> Iterator[Rig]:
    """CPU memory keeps nothing of its own."""
    rig = Rig(use_hot=False)
    yield rig
    rig.close()


def test_it_is_maintenance_and_says_whose(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, backend=BACKEND)).start()
    hold(one)
    report = one.await_report(lambda report: state_of(report) is HealthState.MAINTENANCE)

    assert report.checks[0].reason == (
        "left out by operator:alice (new disks); the check itself is down: check() returned False"
    )


def test_a_failure_then_stops_nothing(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, backend=BACKEND)).start()
    before = one.monitor.is_healthy()
    hold(one)
    report = one.await_report(lambda report: report.healthy)

    assert not before
    assert (report.state, report.reason) == (HealthState.DEGRADED, f"backend '{BACKEND}' is bypassed by operator:alice")


def test_the_failure_counts_again_when_the_operator_lets_go(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, backend=BACKEND)).start()
    hold(one)
    one.await_report(lambda report: report.healthy)
    one.forget()
    let_go(one)

    one.await_report(lambda report: not report.healthy)


def test_nothing_is_engaged_in_maintenance(tower: MakeTower) -> None:
    check = SteeredCheck(backend=BACKEND, policy="journal")
    one = tower(check)
    hold(one)
    one.start()
    check.run = lambda: False
    for _ in range(4):
        check.await_run()

    assert one.journal.journal == []


def test_what_was_engaged_before_stays_until_the_check_passes(tower: MakeTower, cold: Rig) -> None:
    """CPU memory that the policy switched on is what the cache serves from; it must not be cleared now."""
    check = SteeredCheck(run=lambda: False, backend=BACKEND, policy="local_cpu")
    one = tower(check, rig=cold).start()
    hold(one)
    one.await_report(lambda report: state_of(report) is HealthState.MAINTENANCE)
    between = (cold.local.use_hot, sorted(cold.storage.holds(BACKEND)))
    one.forget()
    check.run = lambda: True
    one.await_report(lambda report: not report.checks[0].engaged and "up" in report.checks[0].reason)

    assert between == (True, ["check:steered", "operator:alice"])
    assert (cold.local.use_hot, sorted(cold.storage.holds(BACKEND))) == (False, ["operator:alice"])


@pytest.mark.parametrize("sides", [{"reads": False}, {"writes": False}])
def test_half_a_hold_is_no_maintenance(tower: MakeTower, sides: dict[str, bool]) -> None:
    check = SteeredCheck(run=lambda: False, backend=BACKEND)
    one = tower(check)
    hold(one, **sides)
    one.start()

    assert state_of(one.monitor.report()) is HealthState.DOWN


def test_two_operators_may_hold_half_each(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, backend=BACKEND))
    hold(one, "operator:alice", reads=False)
    hold(one, "operator:bob", writes=False)
    one.start()

    assert state_of(one.monitor.report()) is HealthState.MAINTENANCE


def test_another_checks_hold_is_no_maintenance(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, backend=BACKEND))
    hold(one, "check:other")
    one.start()

    assert state_of(one.monitor.report()) is HealthState.DOWN


def test_a_check_without_a_backend_has_none(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False))
    hold(one)
    one.start()

    assert state_of(one.monitor.report()) is HealthState.DOWN


def test_it_shows_for_how_long(tower: MakeTower) -> None:
    one = tower(SteeredCheck(backend=BACKEND)).start()
    hold(one)
    report = one.await_report(lambda report: state_of(report) is HealthState.MAINTENANCE)

    assert report.checks[0].since_s < 5


def test_when_no_tier_is_left_to_read_from_the_verdict_says_so(tower: MakeTower, cold: Rig) -> None:
    one = tower(SteeredCheck(backend=BACKEND), rig=cold)
    hold(one)
    one.start()
    report = one.monitor.report()

    assert (report.healthy, report.state) == (True, HealthState.DEGRADED)
    assert report.reason == (
        f"backend '{BACKEND}' is bypassed by operator:alice; no tier is left to read from: CPU memory keeps nothing "
        "(local_cpu = false) and every store is left out"
    )
