"""What policies and checks learn from the storage."""

from collections.abc import Iterator

import pytest
import torch
from tests.memory_store import MemoryStore, Rig

from lmcache_core.contracts.control import LocalUsage

NAMES = ["RemoteBackend-0", "RemoteBackend-1"]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(stores=[MemoryStore(), MemoryStore()])
    yield rig
    rig.close()


def test_every_tier_serves(rig: Rig) -> None:
    assert rig.storage.serving() == ["LocalCPUBackend", *NAMES]


def test_cpu_memory_that_keeps_nothing_does_not_serve(rig: Rig) -> None:
    rig.local.set_use_hot(False)

    assert rig.storage.serving() == NAMES


def test_a_store_that_is_not_read_does_not_serve(rig: Rig) -> None:
    rig.storage.set_backend_bypass(NAMES[0], True, owner="a", writes=False)
    rig.storage.set_backend_bypass(NAMES[1], True, owner="a", reads=False)

    assert rig.storage.serving() == ["LocalCPUBackend", NAMES[1]]


def test_holds_are_given_by_owner(rig: Rig) -> None:
    rig.storage.set_backend_bypass(NAMES[0], True, owner="a", reason="why", writes=False)
    (hold,) = rig.storage.holds(NAMES[0]).values()

    assert (hold.reason, hold.reads, hold.writes) == ("why", True, False)
    assert rig.storage.holds(NAMES[1]) == rig.storage.holds("LocalCPUBackend") == rig.storage.holds("nobody") == {}


def test_the_usage_of_cpu_memory_adds_up(rig: Rig) -> None:
    rig.engine.store(range(4), torch.zeros(rig.layout.kv_shape(4)))
    rig.storage.flush(10.0)
    rig.engine.lookup(range(4))
    capacity = rig.arena.capacity_bytes

    assert rig.storage.local_usage() == LocalUsage(
        capacity_bytes=capacity,
        used_bytes=capacity // 8,
        free_bytes=capacity - capacity // 8,
        chunks=1,
        leases=1,
        overdue_s=0.0,
        lent_blocks=1,
        refused_blocks=0,
    )


def test_refused_writes_are_counted(rig: Rig) -> None:
    from tests.memory_store import refuse

    from lmcache_core import BackendFullError

    rig.stores[0].fault = refuse("store", error=BackendFullError("no room"))
    rig.engine.store(range(4), torch.zeros(rig.layout.kv_shape(4)))
    rig.storage.flush(10.0)

    assert [tier.refused_writes for tier in rig.tiers] == [1, 0]


def test_a_store_has_no_notices_unless_it_says_so(rig: Rig) -> None:
    assert rig.tiers[0].notices() == ()
