"""Leaving a backend, or one side of it, out; on real tiers."""

from collections.abc import Iterator

import pytest
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Rig

from lmcache_core import FallbackPolicy
from lmcache_plugins.fallback.bypass import BypassPolicy, ReadOnlyPolicy, WriteOnlyPolicy

BACKEND = "RemoteBackend-0"
POLICIES = [BypassPolicy, ReadOnlyPolicy, WriteOnlyPolicy]


@pytest.fixture
def rig() -> Iterator[Rig]:
    """An engine whose CPU memory keeps nothing of its own."""
    rig = Rig(use_hot=False)
    yield rig
    rig.close()


def a_check(name: str = "remote") -> SteeredCheck:
    return SteeredCheck(name, backend=BACKEND)


@pytest.mark.parametrize(
    ("policy", "reads", "writes"),
    [(BypassPolicy, True, True), (ReadOnlyPolicy, False, True), (WriteOnlyPolicy, True, False)],
)
def test_it_leaves_out_what_its_name_says(rig: Rig, policy: type[FallbackPolicy], reads: bool, writes: bool) -> None:
    policy().engage(a_check(), rig.storage)
    hold = rig.storage.holds(BACKEND)["check:remote"]

    assert (hold.reads, hold.writes) == (reads, writes)
    assert hold.reason == f"check remote fails, policy {policy.name}"


@pytest.mark.parametrize("policy", POLICIES)
def test_it_touches_no_hot_cache(rig: Rig, policy: type[FallbackPolicy]) -> None:
    policy().engage(a_check(), rig.storage)

    assert not rig.local.use_hot


@pytest.mark.parametrize("policy", POLICIES)
def test_release_undoes_it_and_leaves_the_others(rig: Rig, policy: type[FallbackPolicy]) -> None:
    one, check = policy(), a_check()
    rig.storage.set_backend_bypass(BACKEND, True, owner="operator:before")
    one.engage(check, rig.storage)
    one.engage(a_check("other"), rig.storage)
    rig.storage.set_backend_bypass(BACKEND, True, owner="operator:between")
    rig.storage.set_backend_bypass(BACKEND, False, owner="operator:before")
    rig.local.set_use_hot(True)
    one.release(check, rig.storage)

    assert sorted(rig.storage.holds(BACKEND)) == ["check:other", "operator:between"]
    assert rig.local.use_hot


@pytest.mark.parametrize("policy", POLICIES)
def test_releasing_what_was_never_engaged_is_no_error(rig: Rig, policy: type[FallbackPolicy]) -> None:
    policy().release(a_check(), rig.storage)

    assert rig.storage.bypassed() == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_it_serves(policy: type[FallbackPolicy]) -> None:
    assert policy.keeps_serving


def test_each_says_which_side_it_helps_with() -> None:
    assert [sorted(policy.answers) for policy in POLICIES] == [["reads", "writes"], ["writes"], ["reads"]]


@pytest.mark.parametrize("policy", POLICIES)
def test_it_objects_to_a_check_without_a_backend(policy: type[FallbackPolicy]) -> None:
    assert policy().objection(SteeredCheck("disk")) == (
        f"fallback policy '{policy.name}' has no backend to leave out for check 'disk'; "
        "use 'recompute', or name one in get_bypass_backend_name"
    )


def test_it_needs_a_backend_to_engage(rig: Rig) -> None:
    with pytest.raises(LookupError) as caught:
        BypassPolicy().engage(SteeredCheck("disk"), rig.storage)

    assert str(caught.value) == "check 'disk' names no backend to leave out any more"
