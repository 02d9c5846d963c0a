from collections.abc import Callable, Iterator

import pytest
from tests.memory_store import MemoryStore, Options, Rig

from lmcache_core.storage.breaker import BreakerTerms
from lmcache_plugins.remote_health.check import RemoteBackendHealthCheck


class Bench:
    """A check over a real guarded tier whose store a test steers, with a clock of its own."""

    def __init__(self, **options: object) -> None:
        self.rig = Rig(breaker=BreakerTerms(failures=1000, least_calls=1000))  # the check alone shall judge
        self.tier = self.rig.tiers[0]
        self.options = Options(**options)  # type: ignore[arg-type]
        self.tier.options = self.options
        self.now_s = 1000.0
        self.check = RemoteBackendHealthCheck(self.tier, "remote", clock=lambda: self.now_s)

    @property
    def store(self) -> MemoryStore:
        return self.rig.stores[0]

    def fail_loads(self, count: int) -> None:
        for _ in range(count):
            permit = self.tier.admit()
            assert permit is not None
            self.tier.count_load_failure(permit, "refused")


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(**options: object) -> Bench:
        benches.append(Bench(**options))
        return benches[-1]

    yield make
    for one in benches:
        one.rig.close()
