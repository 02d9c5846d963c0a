"""Pages that say why health is as it is, and how it came about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

from lmcache_core.health.explain import explain, explanations_as_json
from lmcache_core.health.history import History, history_as_json
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.health.verdict import report_as_json
from lmcache_core.ops.action import Call
from lmcache_core.ops.page import Page, json_page, refusal
from lmcache_core.ops.status_page import StatusPage

_LIMIT = 1000


class Insight:
    """Explanation, history, and the page that shows both. Asks no store. Any thread.

    Args:
        monitor: Whose verdict is explained.
        history: What is shown of the past.
    """

    def __init__(self, monitor: HealthMonitor, history: History) -> None:
        self._monitor = monitor
        self._history = history
        self._status = StatusPage()

    def by_path(self) -> Mapping[str, Callable[[Call], Page]]:
        """Each page's maker."""
        return {"/": self.status, "/health/why": self.why, "/health/history": self.history}

    def status(self, _: Call) -> Page:
        """A page for people; its script asks the other two every two seconds."""
        return self._status.page()

    def why(self, call: Call) -> Page:
        """What decides each verdict, and what happens next; of one backend with ``?backend=``."""
        report = self._monitor.report()
        try:
            explanations = explain(report, call.query.get("backend"))
        except LookupError as error:
            return refusal(HTTPStatus.NOT_FOUND, str(error.args[0]))
        return json_page({**explanations_as_json(report, explanations), "report": report_as_json(report)})

    def history(self, call: Call) -> Page:
        """The last changes, oldest first; ``?limit=`` of them, of one check or backend with ``?name=``."""
        limit = call.query.get("limit", str(_LIMIT))
        if not limit.isdecimal():
            return refusal(HTTPStatus.BAD_REQUEST, f"limit: {limit[:20]!r} is no number")
        latest = self._history.latest(min(int(limit), _LIMIT), name=call.query.get("name"))
        return json_page(history_as_json(latest, self._history.total))
