import asyncio
import logging
import threading

import pytest
from tests.core.health.tower import Hang, MakeTower, SteeredCheck, raising, state_of
from tests.memory_store import Options

from lmcache_core import CheckResult, HealthState
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.threads import PeriodicThread

# -- before, during and after the first round ----------------------------------------------------------------------


def test_before_start_it_is_not_healthy(tower: MakeTower) -> None:
    report = tower(SteeredCheck()).monitor.report()

    assert (report.healthy, report.state, report.reason) == (
        False,
        HealthState.UNKNOWN,
        "the health monitor has not started",
    )


def test_before_the_first_round_is_done_it_is_not_healthy(tower: MakeTower, hang: Hang) -> None:
    """A peer reads healthy until its first check has run, 30 s after the start."""
    one = tower(SteeredCheck(), SteeredCheck("slow", hang, timeout=30.0))
    one.monitor.start()
    one.await_report(lambda report: state_of(report) is HealthState.UP)
    report = one.monitor.report()
    hang.release.set()

    assert (report.healthy, report.state, report.reason) == (
        False,
        HealthState.UNKNOWN,
        "the first round of checks waits for 'slow'",
    )


def test_whoever_asks_while_the_first_round_is_judged_is_not_let_in(
    tower: MakeTower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has arrived and what is shown differ for a moment; the gate follows what is shown."""
    one = tower(SteeredCheck())
    serving, heard = one.storage.serving, []

    def asked_meanwhile() -> bool:
        heard.append(one.monitor.report())
        return serving()

    monkeypatch.setattr(one.storage, "serving", asked_meanwhile)
    one.start()

    assert {report.healthy for report in heard if state_of(report) is HealthState.UNKNOWN} == {False}


def test_the_gate_is_open_when_the_first_round_has_passed(tower: MakeTower) -> None:
    assert tower(SteeredCheck()).start().monitor.is_healthy()


def test_without_checks_it_is_healthy_at_once(tower: MakeTower) -> None:
    one = tower()
    one.monitor.start()

    assert one.monitor.is_healthy()
    assert one.monitor.wait_first_round(0)
    assert one.monitor.report().state is HealthState.UP


def test_the_first_round_does_not_wait_for_the_interval(tower: MakeTower) -> None:
    tower(SteeredCheck(interval=3600.0)).start()


def test_a_dead_remote_at_start_is_not_healthy(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: False)).start()

    assert not one.monitor.is_healthy()
    assert one.monitor.report().reason == "check 'steered' fails: check() returned False; policy recompute"


def test_after_stop_it_is_not_healthy(tower: MakeTower) -> None:
    one = tower(SteeredCheck()).start()
    one.monitor.stop()

    assert not one.monitor.is_healthy()
    assert (one.monitor.report().state, one.monitor.report().reason) == (
        HealthState.UNKNOWN,
        "the health monitor is stopped",
    )


def test_wait_first_round_gives_up(tower: MakeTower, hang: Hang) -> None:
    one = tower(SteeredCheck(run=hang, timeout=30.0))
    one.monitor.start()
    waited = one.monitor.wait_first_round(0.01)
    hang.release.set()

    assert waited is False


# -- failures and recoveries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_raising_check_fails_and_the_monitor_lives(tower: MakeTower, error: BaseException) -> None:
    """A check that raised SystemExit killed a peer's monitor, which then read healthy for ever."""
    check = raising(error)
    one = tower(check).start()
    check.await_run()
    check.await_run()

    assert not one.monitor.is_healthy()
    assert one.monitor.is_running


def test_a_failing_check_that_passes_again_opens_the_gate(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False)
    one = tower(check).start()
    check.run = lambda: True
    one.await_report(lambda report: report.healthy)

    assert one.monitor.is_healthy()


def test_an_async_check_never_means_healthy(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: asyncio.sleep(0))).start()

    assert not one.monitor.is_healthy()


def test_one_failing_check_of_many_is_enough(tower: MakeTower) -> None:
    one = tower(SteeredCheck("a"), SteeredCheck("b", run=lambda: False), SteeredCheck("c")).start()

    assert not one.monitor.is_healthy()
    assert [check.state for check in one.monitor.report().checks] == [
        HealthState.UP,
        HealthState.DOWN,
        HealthState.UP,
    ]


def test_each_check_runs_on_its_own_interval(tower: MakeTower) -> None:
    slow, fast = SteeredCheck("slow", interval=3600.0), SteeredCheck("fast", interval=0.005)
    tower(slow, fast).start()
    for _ in range(10):
        fast.await_run()

    assert slow.runs == 1


def test_a_check_skipped_at_start_is_watched_once_it_wants_to_be(tower: MakeTower) -> None:
    """In a peer the thread never starts when all checks skip at start."""
    check = SteeredCheck(run=lambda: False, skip=True)
    one = tower(check).start()
    first = state_of(one.monitor.report())
    check.terms["skip"] = False
    one.await_report(lambda report: state_of(report) is HealthState.DOWN)

    assert first is HealthState.SKIPPED


def test_an_exception_of_should_skip_hurts_no_other_check(tower: MakeTower) -> None:
    """In a peer it aborts the whole round and leaves the health as it was."""

    def skip() -> bool:
        raise RuntimeError("cannot tell")

    one = tower(SteeredCheck("bad", skip=skip), SteeredCheck("good")).start()

    assert state_of(one.monitor.report(), "good") is HealthState.UP
    assert one.monitor.report().reason == "check 'bad' fails: RuntimeError: cannot tell; policy recompute"


def test_a_policy_that_turns_unknown_closes_the_gate(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False, policy="journal")
    one = tower(check).start()
    check.terms["policy"] = "local-cpu"
    report = one.await_report(lambda report: report.state is HealthState.DOWN)

    assert report.reason == (
        "check 'steered' fails: check() returned False; fallback policy 'local-cpu' failed with "
        "LookupError: fallback policy 'local-cpu' is not known; did you mean 'local_cpu'"
    )


# -- metrics and log -----------------------------------------------------------------------------------------------


def test_the_gauges_follow(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False)
    one = tower(check, SteeredCheck("good")).start()

    def values() -> list[float | None]:
        registry = one.rig.metrics.registry
        return [registry.get_sample_value("lmcache:is_healthy")] + [
            registry.get_sample_value("lmcache:check_healthy", {"check": name}) for name in ("steered", "good")
        ]

    before = values()
    check.run = lambda: True
    one.await_report(lambda report: report.healthy)

    assert (before, values()) == ([0, 0, 1], [1, 1, 1])


def test_raising_runs_are_counted_and_false_ones_are_not(tower: MakeTower) -> None:
    check = raising(OSError("gone"))
    one = tower(check, SteeredCheck("no", run=lambda: False)).start()

    def count(name: str) -> float | None:
        return one.rig.metrics.registry.get_sample_value("lmcache:check_errors_total", {"check": name})

    assert (count("steered") or 0) >= 1
    assert count("no") is None


def test_a_streak_of_equal_errors_is_logged_once(tower: MakeTower, caplog: pytest.LogCaptureFixture) -> None:
    check = raising(OSError("gone"))
    tower(check).start()
    for _ in range(4):
        check.await_run()

    assert caplog.messages.count("health check steered failed with OSError: gone") == 1


def test_changes_are_logged_with_their_reason(tower: MakeTower, caplog: pytest.LogCaptureFixture) -> None:
    check = SteeredCheck()
    one = tower(check).start()
    caplog.clear()  # another test's cache may have set the level
    with caplog.at_level(logging.INFO):
        check.run = lambda: False
        one.await_report(lambda report: report.state is HealthState.DOWN)
        one.forget()
        check.run = lambda: True
        one.await_report(lambda report: report.healthy)

    # The first round's own line may come before the level is set, or after.
    assert [text for text in caplog.messages if text.startswith("health is")][-2:] == [
        "health is down: check 'steered' fails: check() returned False; policy recompute",
        "health is up: all checks pass",
    ]


def test_evidence_is_in_the_report(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: CheckResult(healthy=True, details={"ping_ms": 0.4}))).start()
    (check,) = one.monitor.report().checks

    assert dict(check.details) == {"ping_ms": 0.4}
    assert check.plugin == "acme"


def test_get_health_checks_gives_them_by_name(tower: MakeTower) -> None:
    b, a = SteeredCheck("b"), SteeredCheck("a")

    assert tower(b, a).monitor.get_health_checks() == [a, b]


def test_a_reservation_keeps_serving(tower: MakeTower) -> None:
    one = tower(SteeredCheck(run=lambda: CheckResult(healthy=True, degraded=True, reason="slow"))).start()
    report = one.monitor.report()

    assert (report.healthy, report.state, report.reason) == (
        True,
        HealthState.DEGRADED,
        "check 'steered' is degraded: slow",
    )


def test_a_plugin_that_did_not_load_degrades(tower: MakeTower) -> None:
    one = tower(plugins_failed={"theirs": "no module named x"}).start()

    assert (one.monitor.report().healthy, one.monitor.report().state) == (True, HealthState.DEGRADED)


def test_a_plugin_that_fails_later_degrades_from_then_on(tower: MakeTower) -> None:
    failed: dict[str, str] = {}
    one = tower(plugins_failed=failed).start()
    before = one.monitor.report()
    failed["theirs"] = "no network"
    after = one.monitor.report()

    assert (before.state, before.plugins_failed) == (HealthState.UP, {})
    assert (after.state, after.plugins_failed) == (HealthState.DEGRADED, {"theirs": "no network"})


def test_default_options_are_lmcaches(tower: MakeTower) -> None:
    one = tower(SteeredCheck(), options=Options())

    assert one.monitor.interval_s == 30.0


def test_a_check_that_gives_up_at_this_moment_is_no_stop(tower: MakeTower, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever judges meanwhile sees why it ends, or does not see that it ends."""
    monitor = tower(SteeredCheck()).monitor
    asked = PeriodicThread.stop_requested.fget
    monitor._thread = threading.current_thread()  # as if started

    def ends_meanwhile(self: PeriodicThread) -> bool:
        self._end("check 'steered' gave up for ever")
        return asked(self)

    monkeypatch.setattr(HealthMonitor, "stop_requested", property(ends_meanwhile))

    assert monitor.report().reason == "check 'steered' gave up for ever"


def test_of_two_that_judge_the_later_one_has_seen_what_is_later(tower: MakeTower) -> None:
    """One that has read what is bypassed must not be overtaken by another one's verdict."""
    alone: list[bool] = []
    monitor = tower(SteeredCheck()).monitor
    monitor._bypassed = lambda: alone.append(monitor._lock.locked()) or {}
    monitor.report()

    assert alone == [True]
