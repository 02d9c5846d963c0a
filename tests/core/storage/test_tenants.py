"""Quotas of tenants in tier 0: who makes room, what is refused, what is told."""

from __future__ import annotations

import time

import pytest
from tests.core.storage.tenant_tier import PAGE, Tier
from tests.engine_calls import MakeRig, forget_local, some_kv
from tests.memory_store import Gate

from lmcache_core.contracts.key import hash_salt
from lmcache_core.storage.tenants import TenantQuota, Tenants

# -- who makes room ---------------------------------------------------------------


def test_a_tenant_at_its_quota_evicts_its_own_oldest_chunk() -> None:
    tier = Tier(10, acme=2)
    tier.store("beta", "a")
    tier.store("acme", "a", "b", "c")

    assert (tier.kept("acme"), tier.kept("beta")) == (["b", "c"], ["a"])


def test_used_chunks_of_a_tenant_at_its_quota_stay() -> None:
    tier = Tier(10, acme=2)
    tier.store("acme", "a", "b")
    tier.arena.release(tier.lease("acme", "a"))
    tier.store("acme", "c")

    assert tier.kept("acme") == ["a", "c"]


def test_a_tenant_below_its_quota_evicts_whatever_is_oldest() -> None:
    tier = Tier(3, acme=3, beta=3)
    tier.store("beta", "a")
    tier.store("acme", "a", "b", "c")

    assert (tier.kept("acme"), tier.kept("beta")) == (["a", "b", "c"], [])


def test_quotas_that_fit_into_memory_keep_tenants_apart() -> None:
    tier = Tier(6, acme=2, beta=4)
    tier.store("beta", "a", "b", "c", "d")
    tier.store("acme", *"abcdefghij")

    assert (tier.kept("acme"), tier.kept("beta")) == (["i", "j"], ["a", "b", "c", "d"])


def test_each_unnamed_tenant_has_the_default_quota() -> None:
    tier = Tier(10, default_pages=2)
    for tenant in ("x", "y", ""):
        tier.store(tenant, "a", "b", "c")

    assert [tier.kept(tenant) for tenant in ("x", "y", "")] == [["b", "c"]] * 3


def test_requests_without_a_salt_may_have_a_quota_of_their_own() -> None:
    tier = Tier(10, default_pages=1, default=3)
    tier.store("", "a", "b", "c", "d")

    assert tier.kept("") == ["b", "c", "d"]


def test_without_quotas_there_is_one_order_for_all() -> None:
    tier = Tier(2)
    tier.store("acme", "a")
    tier.store("beta", "a", "b")

    assert (tier.kept("acme"), tier.kept("beta")) == ([], ["a", "b"])


# -- leases and refusals ------------------------------------------------------------


def test_leased_blocks_count_for_their_tenant_until_they_are_freed() -> None:
    tier = Tier(10, acme=2)
    tier.store("acme", "a", "b")
    held = tier.lease("acme", "a", "b")
    tier.local.clear()

    assert tier.store("acme", "c") == 0
    assert tier.usage("acme").bytes_used == 2 * PAGE
    tier.arena.release(held)
    assert tier.store("acme", "c") == 1


def test_blocks_being_filled_count() -> None:
    tier = Tier(10, acme=2)
    blocks = tier.local.reserve(5, PAGE, tenant="acme")

    assert (len(blocks), tier.usage("acme").bytes_used, tier.usage("acme").refused_blocks) == (2, 2 * PAGE, 3)
    tier.arena.release(blocks)
    assert tier.usage("acme").bytes_used == 0


def test_a_chunk_larger_than_the_quota_is_refused_and_evicts_nothing() -> None:
    tier = Tier(10, acme=2)
    tier.store("acme", "a", "b")

    assert tier.store("acme", "c", pages=3) == 0
    assert tier.kept("acme") == ["a", "b"]


def test_all_leased_chunks_of_others_are_never_taken() -> None:
    tier = Tier(2, acme=2, beta=2)
    tier.store("beta", "a", "b")
    held = tier.lease("beta", "a", "b")

    assert tier.store("acme", "a") == 0
    assert tier.kept("beta") == ["a", "b"]
    tier.arena.release(held)


# -- sizes ------------------------------------------------------------------------


def test_a_large_chunk_takes_the_place_of_small_neighbours_and_no_more() -> None:
    tier = Tier(8)
    tier.store("x", *"abcdefgh")
    tier.arena.release(tier.lease("x", "a"))
    tier.arena.release(tier.lease("x", "b"))

    assert tier.store("y", "a", pages=3) == 1
    assert tier.kept("x") == ["a", "b", "f", "g", "h"]


def test_a_tenant_with_a_quota_pays_for_fragmentation_itself() -> None:
    tier = Tier(6, acme=5, beta=6)
    for name in "abc":  # taken in turn, so that neither has neighbours of its own
        tier.store("acme", name)
        tier.store("beta", name)
    tier.local._evict([b"beta a", b"beta c"])

    assert tier.store("acme", "d", pages=2) == 1
    assert tier.kept("beta") == ["b"]
    assert len(tier.kept("acme")) == 3


def test_small_chunks_after_a_large_one() -> None:
    tier = Tier(6)
    tier.store("x", "a", pages=6)

    assert tier.store("x", "b", "c") == 2
    assert tier.kept("x") == ["b", "c"]


def test_large_chunks_among_many_small_ones_are_bounded_work() -> None:
    tier = Tier(20_000)
    for number in range(20_000):
        tier.store("x", str(number))
    started = time.process_time()
    blocks = tier.local.reserve(64, 100 * PAGE, tenant="y")
    spent_s = time.process_time() - started
    tier.arena.release(blocks)

    assert len(blocks) == 64
    assert tier.local.chunks == 20_000 - 6_400
    assert spent_s < 1.0


# -- what is told -------------------------------------------------------------------


def test_labels_stand_in_the_order_of_the_configuration() -> None:
    tier = Tier(10, beta=1, acme=2)

    assert [one.label for one in tier.local.tenant_usage()] == ["beta", "acme", "default", "other"]


def test_tenants_without_a_label_are_one() -> None:
    tier = Tier(10, acme=5)
    tier.store("x", "a", "b")
    tier.store("y", "a")

    assert (tier.usage("other").chunks, tier.usage("other").bytes_used) == (3, 3 * PAGE)


def test_evictions_count_for_the_tenant_whose_chunk_went() -> None:
    tier = Tier(2)
    tier.store("x", "a", "b")
    tier.store("", "a")

    assert (tier.usage("other").evicted_chunks, tier.usage("default").evicted_chunks) == (1, 0)


def test_metrics_have_a_row_for_each_label(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=4, stores=[])
    rig.engine.store(range(8), some_kv(8), salt="geheim")
    rig.engine.lookup(range(8), salt="geheim")
    rig.engine.lookup(range(8))

    told = {
        name: [rig.sample(name, tenant=label) for label in ("default", "other")]
        for name in ("tenant_chunks", "tenant_requested_tokens_total", "tenant_hit_tokens_total")
    }
    assert told == {
        "tenant_chunks": [0, 2],
        "tenant_requested_tokens_total": [8, 8],
        "tenant_hit_tokens_total": [0, 8],
    }


def test_a_hundred_thousand_salts_make_no_label_and_no_memory() -> None:
    tier = Tier(16, acme=2)
    for number in range(100_000):
        tier.store(f"{number:032x}", "a")
        tier.local.tenants.looked_up(f"{number:032x}", requested_tokens=4, hit_tokens=1)
    labels = {
        sample.labels["tenant"]
        for family in tier.metrics.registry.collect()
        for sample in family.samples
        if "tenant" in sample.labels
    }

    assert labels == {"acme", "default", "other"}
    assert len(tier.local.tenants) < 1100
    assert tier.usage("other").requested_tokens == 400_000
    assert tier.usage("other").chunks == 16


def test_no_report_has_a_salt_or_its_hash(make_rig: MakeRig) -> None:
    rig = make_rig(stores=[])
    rig.engine.store(range(4), some_kv(4), salt="geheim")
    shown = repr(rig.storage.tenants()) + str([family.samples for family in rig.metrics.registry.collect()])

    assert "geheim" not in shown
    assert hash_salt("geheim") not in shown


# -- through the engine ---------------------------------------------------------------


def test_an_engines_salt_is_the_tenant(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=8, stores=[])
    size = rig.arena.capacity_bytes // 8
    rig.local.tenants = Tenants([TenantQuota(label="acme", salt_hash=hash_salt("s"), quota_bytes=2 * size)])
    for start in range(0, 40, 4):
        rig.engine.store(range(start, start + 4), some_kv(4), salt="s")

    (acme, *_) = rig.storage.tenants()
    assert (acme.label, acme.chunks, acme.bytes_used, acme.evicted_chunks) == ("acme", 2, 2 * size, 8)


def test_chunks_that_wait_to_be_written_count(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=8)
    size = rig.arena.capacity_bytes // 8
    rig.local.tenants = Tenants((), 2 * size)
    gate = Gate("store")
    rig.stores[0].fault = gate
    rig.engine.store(range(8), some_kv(8), salt="s")
    rig.local.clear()

    assert rig.engine.store(range(20, 28), some_kv(8), salt="s") == 0
    gate.open()
    rig.storage.flush()
    assert rig.engine.store(range(20, 28), some_kv(8), salt="s") == 8


def test_a_prefetch_stays_within_the_quota(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=8)
    rig.engine.store(range(16), some_kv(16), salt="s")
    forget_local(rig)
    size = rig.arena.capacity_bytes // 8
    rig.local.tenants = Tenants((), 3 * size)

    assert rig.engine.lookup_async(range(16), salt="s").result() == 12


def test_refusals_are_told_as_any(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=8, stores=[])
    rig.local.tenants = Tenants((), 1)

    assert rig.engine.store(range(4), some_kv(4), salt="s") == 0
    assert rig.sample("allocation_failures_total") == 1
    assert rig.sample("tenant_refused_blocks_total", tenant="other") == 1


@pytest.mark.parametrize("name", ["acme", "other"])
def test_a_label_has_its_quota(name: str) -> None:
    assert Tier(10, acme=3, default_pages=3).usage(name).quota_bytes == 3 * PAGE


def test_digests_of_two_tenants_at_once_leak_no_block() -> None:
    tier = Tier(8, p=2, q=2)
    tier.store("p", "a")
    tier.store("q", "b")

    tier.arena.release(tier.local.lease_run([b"p a", b"q b"]))
    tier.local.clear()

    assert tier.arena.used_bytes == 0
