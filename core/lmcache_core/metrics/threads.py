"""How the periodic threads fare, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_LEVELS = ("critical", "high", "medium", "low")


class ThreadView(Protocol):
    """What a scrape reads of one thread."""

    @property
    def name(self) -> str:
        """Of the thread."""

    @property
    def level(self) -> str:
        """One of ``critical``, ``high``, ``medium`` and ``low``."""

    @property
    def is_running(self) -> bool:
        """Whether it is alive."""

    @property
    def is_active(self) -> bool:
        """Whether it ended a run less than three intervals ago."""

    @property
    def error_runs(self) -> int:
        """Runs that raised."""


class ThreadRegistryView(Protocol):
    """Where a scrape finds the threads."""

    def threads(self) -> Sequence[ThreadView]:
        """All threads."""


class PeriodicThreadCollector(Collector):
    """Counts threads, as a whole and by level, under LMCache's names. Any thread may scrape.

    Args:
        registry: Of the cache instance; asked at each scrape.
    """

    def __init__(self, registry: ThreadRegistryView) -> None:
        self._registry = registry

    def describe(self) -> Iterable[Metric]:
        """Name the families without asking the threads; used to find clashes at registration."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Read all threads now."""
        return self._families(self._registry.threads())

    def _families(self, threads: Sequence[ThreadView]) -> Iterator[Metric]:
        yield from _counts("{}_count", "Background threads", threads)
        for level in _LEVELS:
            text = f"Background threads of level {level}"
            yield from _counts(f"{level}_{{}}", text, [thread for thread in threads if thread.level == level])
        errors = CounterMetricFamily(
            "lmcache:periodic_thread_errors", "Runs of a background thread that raised", labels=("thread",)
        )
        for thread in threads:
            errors.add_metric((thread.name,), thread.error_runs)
        yield errors


def _counts(pattern: str, text: str, threads: Sequence[ThreadView]) -> Iterator[Metric]:
    for word, number, meaning in (
        ("total", len(threads), "registered"),
        ("running", sum(thread.is_running for thread in threads), "alive"),
        ("active", sum(thread.is_active for thread in threads), "that ended a run less than three intervals ago"),
    ):
        yield GaugeMetricFamily(f"lmcache:periodic_threads_{pattern.format(word)}", f"{text} {meaning}", value=number)
