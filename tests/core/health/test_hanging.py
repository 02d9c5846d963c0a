import itertools
import threading
import time

import pytest
from tests.core.health.tower import Hang, MakeTower, SteeredCheck, state_of

from lmcache_core import HealthState

# -- hanging checks ------------------------------------------------------------------------------------------------


def test_a_hanging_check_fails_at_its_timeout(tower: MakeTower, hang: Hang) -> None:
    one = tower(SteeredCheck(run=hang, timeout=0.05, interval=30.0)).start()
    report = one.monitor.report()
    hang.release.set()

    assert report.reason.startswith("check 'steered' fails: no answer within 0.05 s")


@pytest.mark.timing
def test_a_hanging_check_delays_no_other(tower: MakeTower, hang: Hang) -> None:
    """In a peer one check that hangs for 5 s delays all others by 5 s."""
    hanging, quick = SteeredCheck("hanging", hang, timeout=30.0), SteeredCheck("quick", interval=0.01)
    one = tower(hanging, quick)
    one.monitor.start()
    assert hang.entered.wait(10)
    started = time.perf_counter()
    for _ in range(10):
        quick.await_run()
    elapsed_s = time.perf_counter() - started
    hang.release.set()

    assert elapsed_s < 10 * (0.01 + 0.05)


def test_a_hanging_check_is_not_started_again(tower: MakeTower, hang: Hang) -> None:
    hanging, quick = SteeredCheck("hanging", hang, timeout=0.01, interval=0.01), SteeredCheck("quick", interval=0.01)
    tower(hanging, quick).start()
    for _ in range(10):
        quick.await_run()
    runs = hanging.runs
    hang.release.set()

    assert runs == 1


def test_more_hanging_checks_than_cores_starve_nobody(tower: MakeTower, hang: Hang) -> None:
    checks = [SteeredCheck(f"hanging-{number}", hang, timeout=0.01) for number in range(20)]
    quick = SteeredCheck("quick", interval=0.01)
    tower(*checks, quick).start()
    quick.await_run()
    quick.await_run()
    hang.release.set()


def test_a_check_that_comes_back_is_run_again(tower: MakeTower, hang: Hang) -> None:
    check = SteeredCheck(run=hang, timeout=0.02)
    one = tower(check).start()
    hang.release.set()
    one.await_report(lambda report: report.healthy)

    assert check.runs >= 2


@pytest.mark.timing
def test_a_report_answers_at_once_while_a_check_hangs(tower: MakeTower, hang: Hang) -> None:
    one = tower(SteeredCheck(run=hang, timeout=30.0))
    one.monitor.start()
    assert hang.entered.wait(10)
    started = time.perf_counter()
    one.monitor.report()
    elapsed_s = time.perf_counter() - started
    hang.release.set()

    assert elapsed_s < 0.2


@pytest.mark.timing
def test_stop_does_not_wait_for_a_hanging_check(tower: MakeTower, hang: Hang) -> None:
    one = tower(SteeredCheck(run=hang, timeout=30.0))
    one.monitor.start()
    assert hang.entered.wait(10)
    started = time.perf_counter()
    stopped = one.monitor.stop()
    elapsed_s = time.perf_counter() - started
    hang.release.set()

    assert stopped
    assert elapsed_s < 1.0


# -- live errors ---------------------------------------------------------------------------------------------------


def test_wake_runs_the_checks_now(tower: MakeTower) -> None:
    check = SteeredCheck(interval=3600.0)
    one = tower(check).start()
    check.run = lambda: False
    one.monitor.wake()
    one.await_report(lambda report: report.state is HealthState.DOWN)


@pytest.mark.timing
def test_a_flood_of_live_errors_is_no_busy_loop(tower: MakeTower) -> None:
    check = SteeredCheck(interval=3600.0)
    one = tower(check).start()
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        one.monitor.wake()

    assert check.runs <= 8


@pytest.mark.timing
def test_many_threads_reporting_failures_leave_a_legal_sequence(tower: MakeTower) -> None:
    """A failure callback and the periodic check once changed the same counters unlocked."""
    runs = iter(range(10**9))
    check = SteeredCheck(run=lambda: next(runs) % 3 != 0, interval=0.001)
    one = tower(check)
    one.monitor.start()
    stop = time.monotonic() + 1.0

    def report_failures() -> None:
        while time.monotonic() < stop:
            one.monitor.wake()
            one.monitor.report()
            time.sleep(0)

    threads = [threading.Thread(target=report_failures) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    states = [(report.healthy, state_of(report)) for report in list(one.reports)]  # without that of the stop
    one.monitor.stop()

    assert all(before != after for before, after in itertools.pairwise(states))
    assert set(states[1:]) <= {(True, HealthState.UP), (False, HealthState.DOWN)}
    assert one.monitor.error_runs == 0
