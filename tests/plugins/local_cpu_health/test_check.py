from collections.abc import Iterator

import pytest
from tests.memory_store import Rig

from lmcache_core import CheckResult
from lmcache_plugins.local_cpu_health.check import LocalCPUHealthCheck
from lmcache_plugins.local_cpu_health.settings import LocalCPUHealthSettings


class Clock:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rig(clock: Clock) -> Iterator[Rig]:
    rig = Rig(chunks=8, clock=clock, lease_ttl_s=300.0)
    yield rig
    rig.close()


def a_check(rig: Rig, **settings: float) -> LocalCPUHealthCheck:
    return LocalCPUHealthCheck(rig.storage.local_usage, LocalCPUHealthSettings(**settings))


def test_memory_that_adds_up_is_fine(rig: Rig) -> None:
    check = a_check(rig)
    blocks = rig.local.reserve(3, rig.codec.frame_bytes)
    result = check.check()
    rig.arena.release(blocks)

    assert (result.healthy, result.degraded, result.reason) == (True, False, "")
    assert result.details == {
        "capacity_bytes": rig.arena.capacity_bytes,
        "used_bytes": 3 * rig.arena.capacity_bytes // 8,
        "free_bytes": 5 * rig.arena.capacity_bytes // 8,
        "chunks": 0,
        "leases": 0,
        "refused_blocks": 0,
    }


def test_memory_that_does_not_add_up_fails(rig: Rig) -> None:
    """Which part of it is whose is unknown then: nothing may be served from it."""
    check = a_check(rig)
    rig.arena._used_bytes += 4096
    capacity = rig.arena.capacity_bytes

    assert check.check().reason == (
        f"CPU memory does not add up: 4096 bytes used and {capacity} free of {capacity}; "
        "restart the process and report it"
    )
    assert check.fallback_policy == "recompute"


def test_refused_blocks_are_a_reservation(rig: Rig) -> None:
    check = a_check(rig)
    blocks = rig.local.reserve(12, rig.codec.frame_bytes)
    result = check.check()
    rig.arena.release(blocks)

    assert (result.healthy, result.degraded) == (True, True)
    assert result.reason == "4 of 12 blocks were refused, as all memory is in use; raise max_local_cpu_size"


def test_it_looks_at_what_was_new_since_the_last_look(rig: Rig) -> None:
    check = a_check(rig)
    rig.arena.release(rig.local.reserve(12, rig.codec.frame_bytes))
    check.check()

    assert not check.check().degraded


def test_a_few_blocks_say_nothing(rig: Rig) -> None:
    check = a_check(rig)
    blocks = rig.local.reserve(9, rig.codec.frame_bytes)
    result = check.check()
    rig.arena.release(blocks)

    assert not result.degraded


def test_a_share_that_is_configured_as_normal_is_normal(rig: Rig) -> None:
    check = a_check(rig, most_refused_share=0.5)
    rig.arena.release(rig.local.reserve(12, rig.codec.frame_bytes))

    assert not check.check().degraded


def test_a_lease_that_nobody_sweeps_is_a_reservation(rig: Rig, clock: Clock) -> None:
    import torch

    check = a_check(rig)
    rig.engine.store(range(4), torch.zeros(rig.layout.kv_shape(4)))
    rig.engine.lookup(range(4))
    clock.now_s += 300.0 + 119.0
    before = check.check()
    clock.now_s += 2.0
    result = check.check()
    rig.storage.sweep()

    assert (before.degraded, result.degraded) == (False, True)
    assert result.reason == (
        "a lease is 121 s older than pin_timeout_sec and holds memory; look at the thread lease-sweeper-thread"
    )
    assert check.check() == CheckResult(healthy=True, details=check.check().details)
