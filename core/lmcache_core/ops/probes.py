"""What Kubernetes asks a container: is it alive, is it ready, has it started."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from lmcache_core.contracts.report import HealthReport
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
        return self._judge()[0]

    def livez(self, _: Call) -> Page:
        """200 while the process answers: no store and no thread of the cache is worth a restart of the engine."""
        return Page(HTTPStatus.OK, "text/plain", b"ok\n")

    def readyz(self, _: Call) -> Page:
        """200 while `is_ready`, else 503."""
        ready, report = self._judge()
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
        reason = self._monitor.report().reason  # before it is asked whether the round is over: else there may be none
        started = self.has_started
        return json_page({"started": started, "reason": "" if started else reason}, _status(holds=started))

    def _judge(self) -> tuple[bool, HealthReport]:
        """Say whether it is ready, and by which report; what says no is in the report."""
        stopping = self._monitor.stop_requested
        report = self._monitor.report()
        well = self._readiness == "started" or report.healthy
        return self.has_started and not stopping and well, report


def _status(*, holds: bool) -> HTTPStatus:
    return HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE
