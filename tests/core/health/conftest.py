from collections.abc import Iterator

import pytest
from tests.core.health.tower import Hang, MakeTower, Watchtower
from tests.memory_store import Rig

from lmcache_core import HealthCheck


@pytest.fixture
def tower() -> Iterator[MakeTower]:
    """Makes towers; the monitor is stopped and the storage closed at the end."""
    towers: list[Watchtower] = []

    def make(*checks: HealthCheck, rig: Rig | None = None, **how: object) -> Watchtower:
        towers.append(Watchtower(rig or Rig(), list(checks), **how))
        return towers[-1]

    yield make
    for one in towers:
        one.monitor.stop()
        one.rig.close()


@pytest.fixture
def hang() -> Iterator[Hang]:
    """A check's body that blocks; released at the end."""
    hang = Hang()
    yield hang
    hang.release.set()
