from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.core.health.desk import Desk
from tests.core.health.tower import Hang, MakeTower, Watchtower
from tests.memory_store import Rig

from lmcache_core import HealthCheck

MakeDesk = Callable[..., Desk]


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


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[MakeDesk]:
    """Makes desks on one folder; each is closed at the end."""
    desks: list[Desk] = []

    def make(folder: Path | None = tmp_path / "state", **how: object) -> Desk:
        desks.append(Desk(folder, **how))  # type: ignore[arg-type]
        return desks[-1]

    yield make
    for one in desks:
        one.close()
