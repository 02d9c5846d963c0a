from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.metrics.threads import PeriodicThreadCollector
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary


class Beat(PeriodicThread):
    def _execute(self) -> ThreadRunSummary:
        return ThreadRunSummary(success=True)


class Ended(Beat):
    def _execute(self) -> ThreadRunSummary:
        self._end("told to")
        return ThreadRunSummary(success=True)


class Raising(Beat):
    def _execute(self) -> ThreadRunSummary:
        self._stopping.set()
        raise RuntimeError("boom")


@pytest.fixture
def threads() -> Iterator[PeriodicThreadRegistry]:
    registry = PeriodicThreadRegistry()
    beats = [
        Beat("one", 3600.0, ThreadLevel.CRITICAL, registry=registry),
        Beat("two", 3600.0, ThreadLevel.LOW, registry=registry),
        Ended("three", 3600.0, ThreadLevel.LOW, registry=registry),
        Raising("four", 3600.0, ThreadLevel.HIGH, registry=registry),
    ]
    for beat in beats:
        beat.start()
    for beat in beats[2:]:
        assert beat._thread is not None
        beat._thread.join(10)
    yield registry
    for beat in beats:
        beat.stop()


@pytest.fixture
def samples(threads: PeriodicThreadRegistry) -> dict[str, float]:
    metrics = CacheMetrics()
    metrics.registry.register(PeriodicThreadCollector(threads))
    return {
        sample.name.removeprefix("lmcache:") + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if "periodic_thread" in sample.name
    }


def test_totals(samples: dict[str, float]) -> None:
    assert samples["periodic_threads_total_count"] == 4
    assert samples["periodic_threads_running_count"] == 2
    assert samples["periodic_threads_active_count"] == 2


def test_by_level(samples: dict[str, float]) -> None:
    levels = {
        level: tuple(int(samples[f"periodic_threads_{level}_{word}"]) for word in ("total", "running", "active"))
        for level in ("critical", "high", "medium", "low")
    }
    assert levels == {"critical": (1, 1, 1), "high": (1, 0, 0), "medium": (0, 0, 0), "low": (2, 1, 1)}


def test_errors_by_thread(samples: dict[str, float]) -> None:
    assert samples["periodic_thread_errors_total[four]"] == 1
    assert samples["periodic_thread_errors_total[one]"] == 0
