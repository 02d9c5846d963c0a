"""What Kubernetes asks a container: is it alive, is it ready, has it started."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.ops.action import Call
from lmcache_core.ops.page import Page, json_page

Readiness = Literal["started", "healthy"]
"""What makes an instance ready: ``started``, it serves or recomputes; ``healthy``, it serves."""


class Probes:
    """Answers of one cache instance. None asks a store. Any thread.

    Args:
        monitor: Whose verdict decides.
        readiness: What `is_ready` asks for.
    """

    def __init__(self, monitor: HealthMonitor, readiness: Readiness = "started") -> None:
        self._monitor = monitor
        self._readiness = readiness

    @property
    def has_started(self) -> bool:
        """Whether the first round of checks is over; stays so."""
        return self._monitor.first_round_done

    @property
    def is_ready(self) -> bool:
        """Whether requests shall be sent here: started, not stopping, and healthy where that is asked for."""
        if not self.has_started or self._monitor.stop_requested:
            return False
        return self._readiness == "started" or self._monitor.report().healthy

    def livez(self, _: Call) -> Page:
        """200 while the process answers: no store and no thread of the cache is worth a restart of the engine."""
        return Page(HTTPStatus.OK, "text/plain", b"ok\n")

    def readyz(self, _: Call) -> Page:
        """200 while `is_ready`, else 503."""
        report = self._monitor.report()
        ready = self.is_ready
        value = {
            "ready": ready,
            "readiness": self._readiness,
            "healthy": report.healthy,
            "state": report.state.value,
            "reason": report.reason,
        }
        return json_page(value, _status(holds=ready))

    def startupz(self, _: Call) -> Page:
        """200 once the first round of checks is over, whatever it found; before that 503."""
        started = self.has_started
        return json_page(
            {"started": started, "reason": "" if started else self._monitor.report().reason}, _status(holds=started)
        )


def _status(*, holds: bool) -> HTTPStatus:
    return HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE
