"""The verdict as metrics, judged anew at each scrape: a monitor that is stuck cannot keep a gauge fresh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.report import CheckReport, HealthReport

_OF_SYSTEM = (HealthState.UP, HealthState.DEGRADED, HealthState.DOWN, HealthState.UNKNOWN)


class MonitorView(Protocol):
    """Where a scrape finds the verdict."""

    def report(self) -> HealthReport:
        """Give the whole verdict."""


class HealthCollector(Collector):
    """States of the system and of every check, and the age of the verdicts. Any thread may scrape.

    Args:
        monitor: Of the cache instance; asked at each scrape.
    """

    def __init__(self, monitor: MonitorView) -> None:
        self._monitor = monitor

    def describe(self) -> Iterable[Metric]:
        """Name the families without asking the monitor; used to find clashes at registration."""
        return self._families(None)

    def collect(self) -> Iterable[Metric]:
        """Judge now."""
        return self._families(self._monitor.report())

    def _families(self, report: HealthReport | None) -> Iterator[Metric]:
        system = GaugeMetricFamily(
            "lmcache:health_state", "1 for the state that the system is in, 0 for the others", labels=("state",)
        )
        for state in _OF_SYSTEM if report is not None else ():
            system.add_metric((state.value,), report is not None and report.state is state)
        yield system
        yield from _check_families(report.checks if report is not None else ())


def _check_families(checks: Sequence[CheckReport]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "lmcache:check_state", "1 for the state that a health check is in, 0 for the others", labels=("check", "state")
    )
    ages = GaugeMetricFamily(
        "lmcache:check_verdict_age_seconds", "Seconds since a health check's last verdict", labels=("check",)
    )
    for check in checks:
        for state in HealthState:
            states.add_metric((check.name, state.value), check.state is state)
        if check.age_s is not None:
            ages.add_metric((check.name,), check.age_s)
    yield states
    yield ages
