"""docs/reference/metrics.md names every family, with kind and labels, and none that is not there."""

import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge

from lmcache_core import HealthReport, HealthState
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.metrics.health import HealthCollector
from lmcache_core.metrics.server import ServerCollector, ServerTally
from lmcache_core.metrics.threads import PeriodicThreadCollector
from lmcache_core.metrics.usage import UsageCollector
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.threads import PeriodicThreadRegistry

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
ROW = re.compile(r"^\| (?P<names>`lmcache:[^|]*) \| (?P<kind>\w+) \|\s*(?P<labels>[^|]*?)\s*\| [^|]+ \|$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


class StubMonitor:
    """A third party's own monitor: all that a scrape needs."""

    def report(self) -> HealthReport:
        return HealthReport(healthy=True, state=HealthState.UP, reason="", since_s=0.0)


class NothingSent:
    """An outbox that is never used."""

    def counts(self) -> dict[tuple[str, str], int]:
        return {}


@pytest.fixture(scope="module")
def page() -> dict[str, tuple[str, tuple[str, ...]]]:
    return {
        name: (row["kind"], tuple(NAME.findall(row["labels"])))
        for row in ROW.finditer(PAGE.read_text())
        for name in NAME.findall(row["names"])
    }


def test_the_page_has_exactly_the_families(page: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    metrics = CacheMetrics()
    metrics.registry.register(PeriodicThreadCollector(PeriodicThreadRegistry()))
    metrics.registry.register(HealthCollector(StubMonitor()))
    metrics.registry.register(UsageCollector(NothingSent(), TelemetryLosses()))
    metrics.registry.register(ServerCollector(ServerTally()))
    metrics.watch_tenants(tuple)
    EventBus(metrics)  # it shows its own families there

    assert set(page) == {family.name for family in metrics.registry.collect()}


def test_the_page_has_their_kinds_and_labels(page: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    families = [family for family in vars(CacheMetrics()).values() if isinstance(family, Counter | Gauge)]

    assert families
    assert {family._name: (family._type, family._labelnames) for family in families} == {
        family._name: page[family._name] for family in families
    }
