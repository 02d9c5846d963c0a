"""Store, lookup, retrieve on good days: what comes back, what is counted."""

from __future__ import annotations

import pytest
import torch
from tests.engine_calls import TOKENS, MakeRig, forget_local, retrieved, some_kv
from tests.memory_store import MemoryStore

from lmcache_core import KVGroup, KVLayout, LoadResult


def test_stored_chunks_come_back_equal(make_rig: MakeRig) -> None:
    rig, kv = make_rig(), some_kv(10)
    rig.engine.store(TOKENS, kv)

    mask, out = retrieved(rig, TOKENS)

    assert mask == [True] * 8 + [False] * 2
    assert torch.equal(out[:, :, :8], kv[:, :, :8])
    assert not out[:, :, 8:].any()


def test_store_says_how_many_tokens_are_new(make_rig: MakeRig) -> None:
    rig = make_rig()

    assert rig.engine.store(TOKENS, some_kv(10)) == 8
    assert rig.engine.store(TOKENS, some_kv(10)) == 0


def test_lookup_counts_full_chunks(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))

    assert rig.engine.lookup([*TOKENS[:8], 99, 99, 99, 99]) == 8


@pytest.mark.parametrize(
    "layout",
    [
        KVLayout(num_layers=3, num_kv_heads=2, head_size=4, dtype="bfloat16"),
        KVLayout(num_layers=3, num_kv_heads=2, head_size=4, dtype="float16"),
        KVLayout(num_layers=3, num_kv_heads=2, head_size=4, dtype="float8_e4m3fn"),
        KVLayout(num_layers=3, num_kv_heads=2, head_size=4, dtype="float8_e5m2"),
        KVLayout(num_layers=3, num_kv_heads=1, head_size=9, dtype="bfloat16", use_mla=True),
        KVLayout(
            num_layers=3,
            num_kv_heads=1,
            head_size=9,
            dtype="float16",
            use_mla=True,
            groups=(KVGroup(name="g", kind="mla", num_layers=3),),
        ),
    ],
)
def test_every_served_layout_goes_through_a_store_and_back(make_rig: MakeRig, layout: KVLayout) -> None:
    rig, kv = make_rig(layout=layout), some_kv(8, layout)
    rig.engine.store(TOKENS[:8], kv)
    forget_local(rig)

    mask, out = retrieved(rig, TOKENS[:8])

    assert all(mask)
    assert torch.equal(out.view(torch.uint8), kv.view(torch.uint8))


def test_non_contiguous_tensors_are_fine(make_rig: MakeRig) -> None:
    rig = make_rig()
    kv = some_kv(8).permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)
    rig.engine.store(TOKENS[:8], kv)

    assert torch.equal(retrieved(rig, TOKENS[:8])[1], kv)


def test_remote_chunks_are_found_when_tier_0_forgot_them(make_rig: MakeRig) -> None:
    rig, kv = make_rig(), some_kv(10)
    rig.engine.store(TOKENS, kv)
    forget_local(rig)

    assert rig.engine.lookup(TOKENS) == 8
    mask, out = retrieved(rig, TOKENS)
    assert mask == [True] * 8 + [False] * 2
    assert torch.equal(out[:, :, :8], kv[:, :, :8])


def test_retrieve_needs_no_lookup(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    forget_local(rig)

    assert sum(retrieved(rig, TOKENS)[0]) == 8


def test_loaded_chunks_stay_in_tier_0(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    forget_local(rig)
    retrieved(rig, TOKENS)

    assert rig.local.chunks == 2


def test_loaded_chunks_do_not_stay_with_local_cpu_off(make_rig: MakeRig) -> None:
    rig = make_rig(use_hot=False)
    rig.engine.store(TOKENS, some_kv(10))
    rig.storage.flush()

    assert sum(retrieved(rig, TOKENS)[0]) == 8
    assert rig.arena.used_bytes == 0


def test_second_store_serves_what_the_first_does_not_have(make_rig: MakeRig) -> None:
    rig = make_rig(stores=[MemoryStore(), MemoryStore()])
    kv = some_kv(8)
    rig.engine.store(TOKENS[:8], kv)
    forget_local(rig)
    del rig.stores[0].frames[list(rig.stores[0].frames)[1]]

    assert rig.engine.lookup(TOKENS[:8]) == 8
    assert torch.equal(retrieved(rig, TOKENS[:8])[1], kv)


def test_salts_never_meet(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10), salt="a")

    assert rig.engine.lookup(TOKENS, salt="b") == 0
    assert rig.engine.lookup(TOKENS) == 0
    assert rig.engine.lookup(TOKENS, salt="a") == 8


# -- promises ------------------------------------------------------------------


def test_lookup_holds_its_chunks_against_eviction(make_rig: MakeRig) -> None:
    rig, kv = make_rig(chunks=2, stores=[]), some_kv(8)
    rig.engine.store(TOKENS[:8], kv)
    rig.engine.lookup(TOKENS[:8])

    rig.engine.store([50, 51, 52, 53], some_kv(4))

    assert torch.equal(retrieved(rig, TOKENS[:8])[1], kv)


def test_lookup_holds_its_chunks_against_clear(make_rig: MakeRig) -> None:
    rig, kv = make_rig(stores=[]), some_kv(8)
    rig.engine.store(TOKENS[:8], kv)
    rig.engine.lookup(TOKENS[:8])

    cleared = rig.engine.clear()[0]

    assert (cleared.chunks, cleared.leased) == (2, 2)
    assert torch.equal(retrieved(rig, TOKENS[:8])[1], kv)
    assert rig.arena.used_bytes == 0


def test_release_gives_the_promise_up(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.engine.lookup(TOKENS)

    assert rig.engine.release(TOKENS) is True
    assert rig.engine.release(TOKENS) is False
    assert rig.storage.promises == 0


def test_expired_promise_is_counted(make_rig: MakeRig) -> None:
    now = [0.0]
    rig = make_rig(clock=lambda: now[0], lease_ttl_s=10.0)
    rig.engine.store(TOKENS, some_kv(10))
    rig.engine.lookup(TOKENS)
    now[0] = 10.0

    rig.storage.sweep()

    assert rig.sample("expired_leases_total") == 1
    assert rig.storage.promises == 0


def test_request_id_ties_retrieve_to_its_lookup(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.engine.lookup(TOKENS, request_id="r1")

    retrieved(rig, TOKENS[:8], request_id="r1")

    assert rig.storage.promises == 0


# -- metrics and events ------------------------------------------------------------


def test_longer_prompt_does_not_evict_its_own_head(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=4, stores=[])
    rig.engine.store(TOKENS[:8], some_kv(8))
    rig.engine.store(list(range(50, 58)), some_kv(8))

    rig.engine.store(list(range(16)), some_kv(16))

    assert rig.engine.lookup(list(range(16))) == 16


def test_tokens_are_counted_once_a_request(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.engine.lookup(TOKENS)
    retrieved(rig, TOKENS)
    rig.engine.lookup([5] * 6)

    names = ("stored", "requested", "hit", "retrieved")
    assert [rig.sample(f"num_{name}_tokens_total") for name in names] == [8, 16, 8, 8]


def test_tokens_found_but_not_delivered_are_counted(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS[:8], some_kv(8))
    forget_local(rig)
    rig.stores[0].results[list(rig.stores[0].frames)[1]] = LoadResult.FAILED
    rig.engine.lookup(TOKENS[:8])

    retrieved(rig, TOKENS[:8])

    assert rig.sample("num_short_tokens_total") == 4


def test_clear_says_what_it_did_tier_by_tier(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.storage.flush()

    report = [(cleared.backend, cleared.chunks, cleared.reason) for cleared in rig.engine.clear()]

    assert report == [
        ("LocalCPUBackend", 2, ""),
        ("RemoteBackend-0", -1, "shared with other instances, so left alone"),
    ]
    assert rig.engine.clear()[0].chunks == 0
