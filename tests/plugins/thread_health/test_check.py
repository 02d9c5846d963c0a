from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine_calls import until

from lmcache_core import CacheManager, CheckResult, KVLayout, ThreadReport
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary
from lmcache_plugins.thread_health.check import ThreadHealthCheck
from lmcache_plugins.thread_health.settings import ThreadHealthSettings


class Idle(PeriodicThread):
    """Does nothing, or what it is told."""

    run = staticmethod(lambda: None)

    def _execute(self) -> ThreadRunSummary:
        self.run()
        return ThreadRunSummary(success=True)


@pytest.fixture
def threads() -> Iterator[PeriodicThreadRegistry]:
    registry = PeriodicThreadRegistry()
    yield registry
    for thread in registry.threads():
        thread.stop()


def start(registry: PeriodicThreadRegistry, name: str, level: ThreadLevel, run=lambda: None, **how) -> Idle:
    thread = Idle(name, how.pop("interval_s", 60.0), level, registry=registry, **how)
    thread.run = run
    thread.start()
    return thread


def look(registry: PeriodicThreadRegistry, critical: bool = True, **settings: float) -> CheckResult:
    return ThreadHealthCheck(registry.reports, ThreadHealthSettings(**settings), critical=critical).check()


def test_threads_that_do_their_work_are_fine(threads: PeriodicThreadRegistry) -> None:
    start(threads, "monitor", ThreadLevel.CRITICAL)
    start(threads, "sweeper", ThreadLevel.HIGH)

    assert look(threads) == look(threads, critical=False) == CheckResult(healthy=True, details={"threads": 1})


def test_a_dead_critical_thread_is_named(threads: PeriodicThreadRegistry) -> None:
    thread = start(threads, "monitor", ThreadLevel.CRITICAL)
    thread._end("check 'gpu' gave up for ever")
    thread.wake()
    thread._thread.join(10)
    result = look(threads)

    assert (result.healthy, result.reason) == (
        False,
        "thread 'monitor' died (check 'gpu' gave up for ever); restart the process",
    )


def test_a_stuck_thread_is_named(threads: PeriodicThreadRegistry) -> None:
    now_s = [0.0]
    start(threads, "flusher", ThreadLevel.LOW, interval_s=20.0, init_wait_s=1.0, clock=lambda: now_s[0])
    before = look(threads, critical=False)
    now_s[0] = 60.0
    edge = look(threads, critical=False)
    now_s[0] = 62.0
    result = look(threads, critical=False)

    assert (before.healthy, edge.healthy) == (True, True)  # three intervals after the first run was due
    assert result.reason == "thread 'flusher' is stuck for 61 s"


def test_a_thread_whose_last_run_failed_is_a_reservation(threads: PeriodicThreadRegistry) -> None:
    def fail() -> None:
        raise OSError("disk gone")

    thread = start(threads, "flusher", ThreadLevel.LOW, fail)
    while not thread.error_runs:
        thread._awake.wait(0.001)
    result = look(threads, critical=False)

    assert (result.healthy, result.degraded) == (True, True)
    assert result.reason == "thread 'flusher' failed in its last run: OSError: disk gone"


def test_each_kind_looks_at_its_own_threads(threads: PeriodicThreadRegistry) -> None:
    thread = start(threads, "sweeper", ThreadLevel.HIGH)
    thread._end("tired")
    thread.wake()
    thread._thread.join(10)

    assert (look(threads).healthy, look(threads, critical=False).healthy) == (True, False)


def test_only_the_critical_ones_stop_the_cache(threads: PeriodicThreadRegistry) -> None:
    both = [ThreadHealthCheck(threads.reports, ThreadHealthSettings(), critical=each) for each in (True, False)]

    assert [(check.name(), check.enforce, check.fallback_policy) for check in both] == [
        ("ThreadHealthCheck(critical)", True, "recompute"),
        ("ThreadHealthCheck(other)", False, "recompute"),
    ]


def test_a_subscriber_that_never_returns_is_stuck() -> None:
    import threading

    entered, release = threading.Event(), threading.Event()

    class Stuck:
        def get_subscriptions(self):
            return {"x": self.take}

        def take(self, event: object) -> None:
            entered.set()
            release.wait(30)

        def events_lost(self, count: int) -> None: ...

        def shutdown(self) -> None: ...

    now_s = [1000.0]
    bus = EventBus(CacheMetrics(), clock=lambda: now_s[0])
    bus.register_subscriber("acme", Stuck())  # type: ignore[arg-type]
    bus.publish("x")
    entered.wait(10)
    now_s[0] += 31.0
    result = ThreadHealthCheck(bus.threads, ThreadHealthSettings(), critical=False).check()
    release.set()
    bus.stop()

    assert result.reason == "thread 'EventBus-acme' is stuck for 31 s"
    assert bus.threads() == []


def test_the_threads_of_a_whole_cache_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    layout = KVLayout(num_layers=1, num_kv_heads=1, head_size=4, dtype="float32")
    with CacheManager.from_config(
        overrides={"max_local_cpu_size": 0.001}, environ={}, layout=layout, model_name="m"
    ) as one:
        seen = {report.name: report.level for report in one.host.threads()}
        wanted = {"ThreadHealthCheck(critical)": "up", "ThreadHealthCheck(other)": "up"}  # nobody waits for the second
        assert until(lambda: states_of(one) == wanted), states_of(one)

    assert seen["health-monitor-thread"] == "critical"
    assert seen["lease-sweeper-thread"] == "high"


def states_of(manager: CacheManager) -> dict[str, str]:
    return {check.name: check.state.value for check in manager.health.report().checks if "Thread" in check.name}


def test_a_report_needs_no_more_than_this() -> None:
    report = ThreadReport(name="t", level="low", is_alive=True, silent_s=0.0, interval_s=1.0)

    assert ThreadHealthCheck(lambda: [report], ThreadHealthSettings(), critical=False).check().healthy
