from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.health.tower import SteeredCheck, Watchtower
from tests.memory_store import Rig

from lmcache_core.metrics.health import HealthCollector


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def tower() -> Iterator[Any]:
    towers: list[Watchtower] = []

    def make(*checks: SteeredCheck, **how: object) -> Watchtower:
        towers.append(Watchtower(Rig(), list(checks), **how))
        towers[-1].metrics.registry.register(HealthCollector(towers[-1].monitor))
        return towers[-1]

    yield make
    for one in towers:
        one.monitor.stop()
        one.rig.close()


def states(tower: Watchtower, family: str, label: str) -> list[str]:
    """States whose series is 1."""
    return [
        sample.labels[label]
        for found in tower.metrics.registry.collect()
        if found.name == f"lmcache:{family}"
        for sample in found.samples
        if sample.value == 1
    ]


def test_one_state_of_the_system_is_1(tower: Any) -> None:
    one = tower(SteeredCheck(run=lambda: False))
    before = states(one, "health_state", "state")
    one.start()

    assert [before, states(one, "health_state", "state")] == [["unknown"], ["down"]]


def test_one_state_of_each_check_is_1(tower: Any) -> None:
    one = tower(SteeredCheck("a"), SteeredCheck("b", run=lambda: False)).start()

    assert states(one, "check_state", "state") == ["up", "down"]


def test_every_state_has_a_series_so_that_an_alert_never_misses_one(tower: Any) -> None:
    one = tower(SteeredCheck())
    (family,) = [found for found in one.metrics.registry.collect() if found.name == "lmcache:health_state"]

    assert [sample.labels["state"] for sample in family.samples] == ["up", "degraded", "down", "unknown"]


def test_the_age_of_a_verdict_is_there_once_there_is_one(tower: Any) -> None:
    one = tower(SteeredCheck(interval=3600.0))
    before = one.rig.metrics.registry.get_sample_value("lmcache:check_verdict_age_seconds", {"check": "steered"})
    one.start()
    after = one.rig.metrics.registry.get_sample_value("lmcache:check_verdict_age_seconds", {"check": "steered"})

    assert before is None
    assert after is not None
    assert 0 <= after < 60


def test_a_verdict_that_has_grown_too_old_reads_unknown_at_the_scrape(tower: Any) -> None:
    clock = Clock()
    one = tower(SteeredCheck(interval=3600.0), clock=clock).start()
    before = states(one, "health_state", "state")
    clock.now_s += 7 * 86_400

    assert [before, states(one, "health_state", "state")] == [["up"], ["unknown"]]
