from collections.abc import Iterator

import pytest
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Rig

from lmcache_plugins.fallback.policy import LocalCPUPolicy, RecomputePolicy

BACKEND = "RemoteBackend-0"


@pytest.fixture
def rig() -> Iterator[Rig]:
    """An engine whose CPU memory keeps nothing of its own."""
    rig = Rig(use_hot=False)
    yield rig
    rig.close()


def a_check(name: str = "remote") -> SteeredCheck:
    return SteeredCheck(name, backend=BACKEND, policy="local_cpu")


def test_recompute_does_not_serve_and_touches_nothing(rig: Rig) -> None:
    policy = RecomputePolicy()
    policy.engage(a_check(), rig.storage)
    engaged = (rig.storage.bypassed(), rig.local.use_hot)
    policy.release(a_check(), rig.storage)

    assert not policy.keeps_serving
    assert engaged == ({}, False)


def test_recompute_objects_to_nothing() -> None:
    assert RecomputePolicy().objection(SteeredCheck()) is None


def test_local_cpu_serves() -> None:
    assert LocalCPUPolicy().keeps_serving


def test_local_cpu_leaves_the_backend_out_and_keeps_chunks(rig: Rig) -> None:
    LocalCPUPolicy().engage(a_check(), rig.storage)

    assert rig.storage.bypassed() == {BACKEND: ("check:remote",)}
    assert rig.local.use_hot


def test_release_undoes_both(rig: Rig) -> None:
    policy, check = LocalCPUPolicy(), a_check()
    policy.engage(check, rig.storage)
    policy.release(check, rig.storage)

    assert (rig.storage.bypassed(), rig.local.use_hot) == ({}, False)


def test_release_leaves_an_operators_bypass(rig: Rig) -> None:
    """In a peer the monitor's recovery removes it."""
    policy, check = LocalCPUPolicy(), a_check()
    policy.engage(check, rig.storage)
    rig.storage.set_backend_bypass(BACKEND, True, owner="operator:alice", reason="maintenance")
    policy.release(check, rig.storage)

    assert rig.storage.bypassed() == {BACKEND: ("operator:alice",)}


def test_release_leaves_what_an_operator_switched_on_meanwhile(rig: Rig) -> None:
    """In a peer recovery overwrites it."""
    policy, check = LocalCPUPolicy(), a_check()
    policy.engage(check, rig.storage)
    rig.local.set_use_hot(True)
    policy.release(check, rig.storage)

    assert rig.local.use_hot


def test_cpu_memory_keeps_chunks_until_the_last_check_has_recovered(rig: Rig) -> None:
    policy, one, other = LocalCPUPolicy(), a_check("one"), a_check("other")
    policy.engage(one, rig.storage)
    policy.engage(other, rig.storage)
    policy.release(one, rig.storage)
    between = (rig.storage.bypassed(), rig.local.use_hot)
    policy.release(other, rig.storage)

    assert between == ({BACKEND: ("check:other",)}, True)
    assert not rig.local.use_hot


def test_engaging_twice_is_engaging_once(rig: Rig) -> None:
    policy, check = LocalCPUPolicy(), a_check()
    policy.engage(check, rig.storage)
    policy.engage(check, rig.storage)
    policy.release(check, rig.storage)

    assert (rig.storage.bypassed(), rig.local.use_hot) == ({}, False)


def test_release_works_even_when_the_check_names_no_backend_any_more(rig: Rig) -> None:
    policy, check = LocalCPUPolicy(), a_check()
    policy.engage(check, rig.storage)
    check.terms["backend"] = None
    policy.release(check, rig.storage)

    assert rig.storage.bypassed() == {}


def test_local_cpu_objects_to_a_check_without_a_backend() -> None:
    assert LocalCPUPolicy().objection(SteeredCheck("disk")) == (
        "fallback policy 'local_cpu' has no backend to leave out for check 'disk'; "
        "use 'recompute', or name one in get_bypass_backend_name"
    )


def test_local_cpu_accepts_a_check_with_one() -> None:
    assert LocalCPUPolicy().objection(a_check()) is None
