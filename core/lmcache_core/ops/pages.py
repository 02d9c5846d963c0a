"""What each page says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from lmcache_core.health.history import History
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.health.verdict import report_as_json
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.ops.action import Action, Call
from lmcache_core.ops.insight import Insight
from lmcache_core.ops.page import Page, json_page
from lmcache_core.ops.probes import Probes
from lmcache_core.threads import PeriodicThreadRegistry


class Pages:
    """The pages of one cache instance. None asks a store, so each answers while every store is frozen.

    Args:
        monitor: Whose verdict is shown.
        metrics: What ``/metrics`` shows.
        threads: What ``/periodic-threads`` shows.
        probes: What ``/livez``, ``/readyz`` and ``/startupz`` say; None for ready once started.
        history: What ``/health/history`` shows; None for nothing.
    """

    def __init__(
        self,
        monitor: HealthMonitor,
        metrics: CacheMetrics,
        threads: PeriodicThreadRegistry,
        probes: Probes | None = None,
        history: History | None = None,
    ) -> None:
        self._monitor = monitor
        self._probes = probes or Probes(monitor)
        self._metrics = metrics
        self._threads = threads
        self._insight = Insight(monitor, history or History(metrics))

    def by_path(self) -> Mapping[str, Callable[[Call], Page]]:
        """Each page's maker."""
        return {
            **self._insight.by_path(),
            "/livez": self._probes.livez,
            "/readyz": self._probes.readyz,
            "/startupz": self._probes.startupz,
            "/health": self.health,
            "/metrics": self.metrics,
            "/periodic-threads": self.periodic_threads,
        }

    def actions(self) -> list[Action]:
        """Each page as a request that the server takes."""
        return [Action(method="GET", path=path, answer=make) for path, make in self.by_path().items()]

    def health(self, _: Call) -> Page:
        """The whole verdict; 200 when healthy, else 503."""
        report = self._monitor.report()
        status = HTTPStatus.OK if report.healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return json_page(report_as_json(report), status)

    def metrics(self, _: Call) -> Page:
        """All families, as Prometheus text.

        Never as OpenMetrics, whatever the scraper would take: its encoder turns the colon of every
        name into an underscore, and no alert written for ``lmcache:is_healthy`` would ever fire.
        """
        self._monitor.report()  # moves lmcache:is_healthy on where the monitor's thread cannot: it may be stuck
        return Page(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._metrics.registry))

    def periodic_threads(self, _: Call) -> Page:
        """How each background thread fares."""
        return json_page({"threads": self._threads.statuses()})
