import asyncio
import itertools
import logging
import threading
import time

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, Watchtower
from tests.memory_store import Options

from lmcache_core import CheckResult, ConfigError, HealthReport, HealthState, IrrecoverableException, PluginError


def state_of(report: HealthReport, name: str = "steered") -> HealthState:
    return next(check.state for check in report.checks if check.name == name)


def raising(error: BaseException) -> SteeredCheck:
    def run() -> bool:
        raise error

    return SteeredCheck(run=run)


def await_health(one: Watchtower) -> None:
    deadline = time.monotonic() + 10
    while not one.monitor.is_healthy():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Hang:
    """A check's body that blocks until released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> bool:
        self.entered.set()
        self.release.wait(30)
        return True


@pytest.fixture
def hang() -> Hang:
    return Hang()


# -- before, during and after the first round ------------------------------------------------------------------


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


# -- failures and recoveries -------------------------------------------------------------------------------------


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


# -- hanging checks -----------------------------------------------------------------------------------------------


def test_a_hanging_check_fails_at_its_timeout(tower: MakeTower, hang: Hang) -> None:
    one = tower(SteeredCheck(run=hang, timeout=0.05)).start()
    report = one.monitor.report()
    hang.release.set()

    assert report.reason.startswith("check 'steered' fails: no answer within 0.05 s")


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


def test_a_report_answers_at_once_while_a_check_hangs(tower: MakeTower, hang: Hang) -> None:
    one = tower(SteeredCheck(run=hang, timeout=30.0))
    one.monitor.start()
    assert hang.entered.wait(10)
    started = time.perf_counter()
    one.monitor.report()
    elapsed_s = time.perf_counter() - started
    hang.release.set()

    assert elapsed_s < 0.2


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


# -- live errors --------------------------------------------------------------------------------------------------


def test_wake_runs_the_checks_now(tower: MakeTower) -> None:
    check = SteeredCheck(interval=3600.0)
    one = tower(check).start()
    check.run = lambda: False
    one.monitor.wake()
    one.await_report(lambda report: report.state is HealthState.DOWN)


def test_a_flood_of_live_errors_is_no_busy_loop(tower: MakeTower) -> None:
    check = SteeredCheck(interval=3600.0)
    one = tower(check).start()
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        one.monitor.wake()

    assert check.runs <= 8


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
    one.monitor.stop()
    states = [(report.healthy, state_of(report)) for report in one.reports]

    assert all(before != after for before, after in itertools.pairwise(states))
    assert set(states[1:]) <= {(True, HealthState.UP), (False, HealthState.DOWN)}
    assert one.monitor.error_runs == 0


# -- giving up ----------------------------------------------------------------------------------------------------


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


# -- this thread itself -------------------------------------------------------------------------------------------


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
    assert (stuck.state, stuck.reason) == (HealthState.UNKNOWN, "thread 'health-monitor-thread' is stuck")


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
    check.await_run()
    check.await_run()

    assert one.monitor.get_status()["last_summary"] == {
        "success": False,
        "message": "Failed checks: ['steered']",
        "extra_info": {"total_checks": 2, "failed_checks": ["steered"], "bypassed_backends": []},
    }


def test_two_monitors_in_one_process_do_not_clash(tower: MakeTower) -> None:
    up, down = tower(SteeredCheck()).start(), tower(SteeredCheck(run=lambda: False)).start()

    assert (up.monitor.is_healthy(), down.monitor.is_healthy()) == (True, False)


# -- what is refused at start-up ------------------------------------------------------------------------------------


def test_two_checks_of_one_name_are_refused(tower: MakeTower) -> None:
    checks = [("ours", "ours 1.0", SteeredCheck("disk")), ("theirs", "theirs 2.0", SteeredCheck("disk"))]
    with pytest.raises(PluginError) as caught:
        tower(checks=checks)

    assert str(caught.value) == (
        "plugin 'theirs' (theirs 2.0): health check 'disk' is already declared by plugin 'ours'; rename or disable one"
    )


def test_a_check_with_a_bad_term_is_refused(tower: MakeTower) -> None:
    with pytest.raises(PluginError) as caught:
        tower(SteeredCheck(interval=-5))

    assert str(caught.value) == (
        "plugin 'acme' (acme-checks 2.0): health check SteeredCheck cannot be used: "
        "ValueError: interval must be a finite number of seconds above 0, got -5"
    )


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_check_without_a_name_is_refused(tower: MakeTower, name: str) -> None:
    with pytest.raises(PluginError) as caught:
        tower(SteeredCheck(name))

    assert str(caught.value) == (
        "plugin 'acme' (acme-checks 2.0): health check SteeredCheck cannot be used: "
        f"ValueError: name() must give a name, got {name!r}"
    )


def test_unknown_policies_are_refused_all_at_once_with_the_nearest_names(tower: MakeTower) -> None:
    """A peer turns an unknown policy into recompute with a warning."""
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck("a", policy="local-cpu"), SteeredCheck("b", policy="xyz"))

    assert caught.value.problems == (
        "health check 'a' (plugin 'acme'): fallback policy 'local-cpu' is not known; did you mean 'local_cpu'",
        "health check 'b' (plugin 'acme'): fallback policy 'xyz' is not known; known: journal, local_cpu, recompute",
    )


def test_local_cpu_without_a_backend_to_bypass_is_refused(tower: MakeTower) -> None:
    """In a peer it is a warning and the check protects nothing."""
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck(policy="local_cpu"))

    assert str(caught.value) == (
        "health check 'steered' (plugin 'acme'): fallback policy 'local_cpu' has no backend to leave out for check "
        "'steered'; use 'recompute', or name one in get_bypass_backend_name"
    )


def test_a_backend_that_is_not_there_is_refused(tower: MakeTower) -> None:
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck(policy="local_cpu", backend="RemoteBackend-O"))

    assert str(caught.value) == (
        "health check 'steered' (plugin 'acme'): backend 'RemoteBackend-O' is not there; did you mean 'RemoteBackend-0'"
    )


def test_tier_0_cannot_be_left_out(tower: MakeTower) -> None:
    with pytest.raises(ConfigError) as caught:
        tower(SteeredCheck(policy="local_cpu", backend="LocalCPUBackend"))

    assert str(caught.value) == (
        "health check 'steered' (plugin 'acme'): backend 'LocalCPUBackend' is tier 0, which cannot be left out; "
        "use policy 'recompute'"
    )


# -- metrics and log ----------------------------------------------------------------------------------------------


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
    with caplog.at_level(logging.INFO):
        check.run = lambda: False
        one.await_report(lambda report: report.state is HealthState.DOWN)
        one.forget()
        check.run = lambda: True
        one.await_report(lambda report: report.healthy)

    assert [text for text in caplog.messages if text.startswith("health is")] == [
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


def test_default_options_are_lmcaches(tower: MakeTower) -> None:
    one = tower(SteeredCheck(), options=Options())

    assert one.monitor.interval_s == 30.0
