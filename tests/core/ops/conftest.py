import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.core.health.tower import Watchtower
from tests.memory_store import Rig

from lmcache_core import HealthCheck, HealthReport
from lmcache_core.health.history import History
from lmcache_core.metrics.threads import PeriodicThreadCollector
from lmcache_core.ops.action import Action
from lmcache_core.ops.pages import Pages
from lmcache_core.ops.probes import Probes, Readiness
from lmcache_core.ops.server import OpsServer


@dataclass
class Answer:
    """What a client got."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Site:
    """Pages of a real monitor on a real port."""

    def __init__(
        self,
        *checks: HealthCheck,
        host: str = "127.0.0.1",
        port: int = 0,
        readiness: Readiness = "started",
        actions: Callable[[Watchtower], list[Action]] = lambda _tower: [],
        **how: object,
    ) -> None:
        rig = Rig()
        self.history = History(rig.metrics)
        self.tower = Watchtower(rig, list(checks), **{"on_change": self._note, **how})
        self.tower.metrics.registry.register(PeriodicThreadCollector(self.tower.threads))
        probes = Probes(self.tower.monitor, readiness)
        self.pages = Pages(self.tower.monitor, self.tower.metrics, self.tower.threads, probes, self.history)
        self.server = OpsServer(self.pages, host=host, port=port, actions=actions(self.tower))

    def get(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        request = urllib.request.Request(f"{self.server.address}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return Answer(response.status, response.read().decode(), dict(response.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), dict(error.headers))

    def _note(self, report: HealthReport) -> None:
        self.history.observe(report)
        self.tower._note(report)

    def close(self) -> None:
        self.server.stop()
        self.tower.monitor.stop()
        self.tower.rig.close()


MakeSite = Callable[..., Site]


@pytest.fixture
def site() -> Iterator[MakeSite]:
    """Makes sites, serving; the monitor is left to the test."""
    sites: list[Site] = []

    def make(*checks: HealthCheck, **how: object) -> Site:
        sites.append(Site(*checks, **how))  # type: ignore[arg-type]
        sites[-1].server.start()
        return sites[-1]

    yield make
    for one in sites:
        one.close()
