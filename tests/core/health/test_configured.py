"""What ``[[extra_config.checks]]`` does to checks."""

import logging

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, state_of

from lmcache_core import ConfigError, HealthState
from lmcache_core.config.checks import CheckTable


def test_the_later_entry_wins(tower: MakeTower) -> None:
    tables = [CheckTable(match="*", interval=50.0, group="all"), CheckTable(match="ste*", interval=70.0)]
    (check,) = tower(SteeredCheck(), tables=tables).start().monitor.report().checks

    assert 50 < check.next_run_s <= 70
    assert check.group == "all"


def test_another_check_is_left_alone(tower: MakeTower) -> None:
    one = tower(SteeredCheck("a", interval=3.0), SteeredCheck("b"), tables=[CheckTable(match="b", interval=50.0)])

    assert one.start().monitor.report().checks[0].next_run_s <= 3.0


def test_an_entry_that_fits_no_check_is_refused_with_the_nearest_name(tower: MakeTower) -> None:
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck("RemoteBackendHealthCheck(a)"), tables=[CheckTable(match="RemoteBckendHealth*")])

    assert str(caught.value) == (
        "extra_config.checks[0].match: no health check is called 'RemoteBckendHealth*'; "
        "the nearest name is 'RemoteBackendHealthCheck(a)'"
    )


def test_a_dependency_that_fits_no_check_or_group_is_refused(tower: MakeTower) -> None:
    checks = [SteeredCheck("a", group="network"), SteeredCheck("b")]
    with pytest.raises(ConfigError) as caught:
        tower(*checks, tables=[CheckTable(match="b", depends_on=("a", "netwrk"))])

    assert str(caught.value) == (
        "extra_config.checks[0].depends_on: no health check or group is called 'netwrk'; the nearest name is 'network'"
    )


def test_where_a_plugin_did_not_load_it_is_a_warning(tower: MakeTower, caplog: pytest.LogCaptureFixture) -> None:
    """The check may be that plugin's, and a plugin that nobody requires stops no start."""
    with caplog.at_level(logging.WARNING):
        tower(SteeredCheck(), tables=[CheckTable(match="gpu*")], plugins_failed={"gpu": "no driver"})

    assert "extra_config.checks[0].match: no health check is called 'gpu*'; known: 'steered'" in caplog.messages


def test_where_the_cache_did_not_initialise_it_is_a_warning(tower: MakeTower) -> None:
    tower(tables=[CheckTable(match="*")], init_failed_reason="no memory")


def test_its_policy_wins(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False), tables=[CheckTable(match="*", fallback_policy="journal")]).start()

    assert one.monitor.is_healthy()
    assert one.journal.journal == ["engage steered"]


def test_an_observed_check_stops_nothing(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, policy="journal"), tables=[CheckTable(match="*", enforce=False)])
    report = one.start().await_report(lambda report: state_of(report) is HealthState.DOWN)

    assert (report.healthy, report.state) == (True, HealthState.DEGRADED)
    assert report.reason == "check 'steered' fails: check() returned False (observed only, stops nothing)"
    assert one.journal.journal == []
    assert not report.checks[0].enforced


def test_an_observed_checks_failures_are_counted(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False, enforce=False)
    one = tower(check).start()
    for _ in range(4):
        check.await_run()

    assert one.rig.metrics.registry.get_sample_value("lmcache:check_failures_total", {"check": "steered"}) >= 2


def test_an_observed_check_that_hangs_does_not_hold_up_the_start(tower: MakeTower, hang) -> None:
    one = tower(SteeredCheck(run=hang, enforce=False, timeout=30.0)).start()

    assert one.monitor.is_healthy()


def test_an_observed_check_that_gives_up_for_ever_ends_nothing(tower: MakeTower) -> None:
    from lmcache_core import IrrecoverableException

    def give_up() -> bool:
        raise IrrecoverableException("broken for good")

    one = tower(SteeredCheck(run=give_up, enforce=False), SteeredCheck("good")).start()
    one.await_report(lambda report: state_of(report) is HealthState.DOWN)

    assert one.monitor.is_healthy()
    assert one.monitor.is_running


def test_a_delayed_check_does_not_hold_up_the_start(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False, initial_delay=3600.0)
    one = tower(check).start()
    one.monitor.wake()
    report = one.monitor.report()

    assert (report.healthy, check.runs) == (True, 0)
    assert report.checks[0].reason == "has not run yet: its first run is delayed"
    assert 3590 < report.checks[0].next_run_s <= 3600


def test_a_delayed_check_runs_when_its_time_has_come(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False, initial_delay=0.05)).start()

    one.await_report(lambda report: not report.healthy)


def test_a_failing_check_runs_on_the_fast_interval(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False, interval=3600.0, fast_interval=0.005)
    tower(check).start()
    for _ in range(5):
        check.await_run()


def test_a_whole_cache_refuses_an_entry_that_fits_no_check(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmcache_core import CacheManager, KVLayout

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        CacheManager.from_config(
            overrides={"max_local_cpu_size": 0.001, "extra_config": {"checks": [{"match": "LocalCpuHealthChek"}]}},
            environ={},
            layout=KVLayout(num_layers=1, num_kv_heads=1, head_size=4, dtype="float32"),
            model_name="m",
        )

    assert str(caught.value) == (
        "extra_config.checks[0].match: no health check is called 'LocalCpuHealthChek'; "
        "the nearest name is 'LocalCPUHealthCheck'"
    )
