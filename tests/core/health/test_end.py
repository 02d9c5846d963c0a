import re
import threading
import time

import pytest
from tests.core.health.tower import Hang, MakeTower, SteeredCheck, Watchtower, raising, state_of

from lmcache_core import HealthReport, HealthState, IrrecoverableException


def await_health(one: Watchtower) -> None:
    deadline = time.monotonic() + 10
    while not one.monitor.is_healthy():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# -- giving up -----------------------------------------------------------------------------------------------------


def test_an_irrecoverable_check_ends_the_monitor_for_good(tower: MakeTower) -> None:
    check = raising(IrrecoverableException("the disk is gone"))
    one = tower(check, SteeredCheck("other")).start()
    thread = one.monitor._thread
    assert thread is not None
    thread.join(10)
    check.run = lambda: True
    one.monitor.wake()
    report = one.monitor.report()

    assert not one.monitor.is_running
    assert (report.healthy, report.state) == (False, HealthState.DOWN)
    assert report.reason == "check 'steered' gave up for ever: IrrecoverableException: the disk is gone"


def test_nobody_waits_for_the_first_round_of_a_monitor_that_has_ended(tower: MakeTower, hang: Hang) -> None:
    check = raising(IrrecoverableException("the disk is gone"))
    one = tower(check, SteeredCheck("hanging", hang, timeout=3600.0, interval=3600.0))
    one.monitor.start()
    assert one.monitor.wait_first_round(10)
    hang.release.set()

    assert one.monitor.first_round_done
    assert not one.monitor.is_healthy()


def test_an_irrecoverable_check_stays_down_whatever_its_policy(tower: MakeTower) -> None:
    check = raising(IrrecoverableException("gone"))
    check.terms["policy"] = "journal"
    one = tower(check)
    one.monitor.start()
    one.await_report(lambda report: state_of(report) is HealthState.DOWN)

    assert not one.monitor.is_healthy()


def test_the_threads_status_flags_it(tower: MakeTower) -> None:
    """A peer's threads page shows nothing wrong after the monitor has given up."""
    one = tower(raising(IrrecoverableException("gone")))
    one.monitor.start()
    one.await_report(lambda report: state_of(report) is HealthState.DOWN)
    thread = one.monitor._thread
    assert thread is not None
    thread.join(10)
    (status,) = one.threads.statuses()

    assert (status["is_running"], status["end_reason"]) == (
        False,
        "check 'steered' gave up for ever: IrrecoverableException: gone",
    )


def test_after_a_failed_initialisation_it_is_never_healthy(tower: MakeTower) -> None:
    check = SteeredCheck()
    one = tower(check, init_failed_reason="MemoryError: no room")
    one.monitor.start()
    report = one.monitor.report()

    assert (report.healthy, report.state, report.reason) == (
        False,
        HealthState.DOWN,
        "the cache did not initialise: MemoryError: no room",
    )
    assert (check.runs, one.monitor.is_running, one.monitor.wait_first_round(0)) == (0, False, True)


def test_after_a_failed_initialisation_the_gauge_is_there_and_0(tower: MakeTower) -> None:
    one = tower(init_failed_reason="MemoryError: no room")
    one.monitor.start()

    assert one.rig.metrics.registry.get_sample_value("lmcache:is_healthy") == 0


# -- this thread itself --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_monitor_that_died_never_reads_healthy(tower: MakeTower, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tower(SteeredCheck()).start()

    def die(_wait_s: float | None = None) -> bool:
        raise SystemExit

    monkeypatch.setattr(one.monitor._awake, "wait", die)
    thread = one.monitor._thread
    assert thread is not None
    thread.join(10)

    assert not one.monitor.is_healthy()
    assert (one.monitor.report().state, one.monitor.report().reason) == (
        HealthState.DOWN,
        "thread 'health-monitor-thread' died; restart the process",
    )


def test_a_monitor_that_is_stuck_reads_unknown_and_recovers(tower: MakeTower) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def block(_report: HealthReport) -> None:
        entered.set()
        go_on.wait(30)

    passed_s = [0.0]
    check = SteeredCheck()
    one = tower(check, on_change=block, clock=lambda: time.monotonic() + passed_s[0])
    one.monitor.start()
    assert entered.wait(10)
    passed_s[0] = 10.0
    stuck = one.monitor.report()
    closed = not one.monitor.is_healthy()
    go_on.set()
    assert one.monitor.wait_first_round(10)
    await_health(one)

    assert closed
    assert stuck.state is HealthState.UNKNOWN
    assert re.fullmatch(r"thread 'health-monitor-thread' is stuck \(in block, test_end.py line \d+\)", stuck.reason)


def test_a_raising_listener_is_logged_and_harms_nothing(tower: MakeTower, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_report: HealthReport) -> None:
        raise SystemExit(3)

    one = tower(SteeredCheck(), on_change=fail).start()

    assert one.monitor.is_healthy()
    assert "a listener to health changes failed with SystemExit: 3" in caplog.messages


def test_an_exception_of_the_loop_itself_is_survived(tower: MakeTower) -> None:
    check = SteeredCheck()
    one = tower(check).start()
    check.terms["interval"] = 0.001
    check.check = None  # type: ignore[method-assign,assignment]
    one.await_report(lambda report: report.state is HealthState.DOWN)

    assert one.monitor.is_running


def test_its_name_and_level_are_lmcaches(tower: MakeTower) -> None:
    status = tower().monitor.get_status()

    assert (status["name"], status["level"]) == ("health-monitor-thread", "critical")


def test_its_summary_names_the_failed_checks(tower: MakeTower) -> None:
    check = SteeredCheck(run=lambda: False)
    one = tower(check, SteeredCheck("good")).start()
    for _ in range(3):  # a run starts within a look; the look before it is over
        check.await_run()

    assert one.monitor.get_status()["last_summary"] == {
        "success": False,
        "message": "Failed checks: ['steered']",
        "extra_info": {"total_checks": 2, "failed_checks": ["steered"], "bypassed_backends": []},
    }


def test_two_monitors_in_one_process_do_not_clash(tower: MakeTower) -> None:
    up, down = tower(SteeredCheck()).start(), tower(SteeredCheck(run=lambda: False)).start()

    assert (up.monitor.is_healthy(), down.monitor.is_healthy()) == (True, False)
