"""What each page says; knows nothing of the web framework that sends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.health.verdict import report_as_json
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.threads import PeriodicThreadRegistry

if TYPE_CHECKING:  # the optional extra http
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    status: HTTPStatus
    media_type: str
    body: bytes


class Pages:
    """The pages of one cache instance. None asks a store, so each answers while every store is frozen.

    Args:
        monitor: Whose verdict is shown.
        metrics: What ``/metrics`` shows.
        threads: What ``/periodic-threads`` shows.
    """

    def __init__(self, monitor: HealthMonitor, metrics: CacheMetrics, threads: PeriodicThreadRegistry) -> None:
        self._monitor = monitor
        self._metrics = metrics
        self._threads = threads

    def by_path(self) -> Mapping[str, Callable[[], Page]]:
        """Each page's maker."""
        return {
            "/": self.index,
            "/livez": self.livez,
            "/readyz": self.readyz,
            "/health": self.health,
            "/metrics": self.metrics,
            "/periodic-threads": self.periodic_threads,
        }

    def index(self) -> Page:
        """Name the pages."""
        return Page(HTTPStatus.OK, "text/plain", "\n".join([*self.by_path(), ""]).encode())

    def livez(self) -> Page:
        """200 while the process answers; a failed store is no reason to restart it."""
        return Page(HTTPStatus.OK, "text/plain", b"ok\n")

    def readyz(self) -> Page:
        """200 once every check has a verdict: from then on each request is served or recomputed."""
        report = self._monitor.report()
        ready = self._monitor.first_round_done
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _json_page(
            {"ready": ready, "healthy": report.healthy, "state": report.state.value, "reason": report.reason}, status
        )

    def health(self) -> Page:
        """The whole verdict; 200 when healthy, else 503."""
        report = self._monitor.report()
        status = HTTPStatus.OK if report.healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return _json_page(report_as_json(report), status)

    def metrics(self) -> Page:
        """All families, as Prometheus text.

        Never as OpenMetrics, whatever the scraper would take: its encoder turns the colon of every
        name into an underscore, and no alert written for ``lmcache:is_healthy`` would ever fire.
        """
        return Page(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._metrics.registry))

    def periodic_threads(self) -> Page:
        """How each background thread fares."""
        return _json_page({"threads": self._threads.statuses()}, HTTPStatus.OK)


def build_app(pages: Pages) -> Starlette:
    """Make the ASGI application; needs the extra ``http``."""
    from starlette.applications import Starlette  # noqa: PLC0415 - optional extra
    from starlette.responses import Response  # noqa: PLC0415 - optional extra
    from starlette.routing import Route  # noqa: PLC0415 - optional extra

    def route(path: str, make: Callable[[], Page]) -> Route:
        def endpoint(_: Request) -> Response:
            page = make()
            headers = {"cache-control": "no-store", "content-type": page.media_type}
            return Response(page.body, page.status, headers)

        return Route(path, endpoint, methods=["GET"])

    return Starlette(routes=[route(path, make) for path, make in pages.by_path().items()])


def _json_page(value: object, status: HTTPStatus) -> Page:
    body = json.dumps(value, indent=2, allow_nan=False) + "\n"
    return Page(status, "application/json", body.encode())
