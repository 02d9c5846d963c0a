"""Stores that miss, lie, fail, hang or are full: a shorter prefix, never a wrong byte, always counted."""

from __future__ import annotations

import pytest
import torch
from tests.engine_calls import TOKENS, MakeRig, forget_local, retrieved, some_kv, until
from tests.memory_store import Gate, refuse

from lmcache_core import BackendError, BackendFullError, LoadResult

# -- bad days ------------------------------------------------------------------


@pytest.mark.parametrize("result", [LoadResult.MISS, LoadResult.CORRUPT, LoadResult.FAILED])
def test_chunk_that_cannot_be_loaded_ends_the_prefix(make_rig: MakeRig, result: LoadResult) -> None:
    rig, kv = make_rig(), some_kv(12)
    tokens = list(range(12))
    rig.engine.store(tokens, kv)
    forget_local(rig)
    rig.stores[0].results[list(rig.stores[0].frames)[1]] = result

    mask, out = retrieved(rig, tokens)

    assert mask == [True] * 4 + [False] * 8
    assert torch.equal(out[:, :, :4], kv[:, :, :4])
    assert not out[:, :, 4:].any()


@pytest.mark.parametrize(
    ("result", "reason"), [(LoadResult.MISS, "gone"), (LoadResult.CORRUPT, "corrupt"), (LoadResult.FAILED, "failed")]
)
def test_chunk_that_cannot_be_loaded_is_counted_by_reason(make_rig: MakeRig, result: LoadResult, reason: str) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS[:4], some_kv(4))
    forget_local(rig)
    rig.stores[0].results[next(iter(rig.stores[0].frames))] = result

    retrieved(rig, TOKENS[:4])

    assert rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason=reason) == 1


def test_miss_is_no_failure(make_rig: MakeRig) -> None:
    rig = make_rig()
    retrieved(rig, TOKENS)
    rig.engine.lookup(TOKENS)

    assert rig.tiers[0].load_failures == 0


@pytest.mark.parametrize("byte", [0, 9, 20, 100, 120, 200, -1])
def test_flipped_byte_is_a_miss_and_the_chunk_is_deleted(make_rig: MakeRig, byte: int) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS[:4], some_kv(4))
    forget_local(rig)
    store = rig.stores[0]
    (digest,) = store.frames
    damaged = bytearray(store.frames[digest])
    damaged[byte] ^= 1
    store.frames[digest] = bytes(damaged)

    mask, out = retrieved(rig, TOKENS[:4])
    rig.storage.close(1.0)

    assert not any(mask)
    assert not out.any()
    assert not store.frames


def test_failing_load_is_a_short_prefix_and_wakes_the_monitor(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS[:8], some_kv(8))
    forget_local(rig)
    rig.stores[0].fault = refuse("load")

    assert not any(retrieved(rig, TOKENS[:8])[0])
    assert rig.tiers[0].load_failures == 1
    assert rig.failures == ["x"]


def test_store_that_raises_system_exit_ends_nobody(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.stores[0].fault = refuse("contains", error=SystemExit("bye"))  # type: ignore[arg-type]

    assert rig.engine.lookup(TOKENS) == 0


def test_hung_lookup_ends_at_its_deadline(make_rig: MakeRig) -> None:
    rig = make_rig(timeout_s=0.05)
    rig.stores[0].fault = Gate("contains")

    assert rig.engine.lookup(TOKENS) == 0
    assert rig.tiers[0].load_failures == 1


def test_late_load_frees_its_blocks_only_when_the_worker_is_done(make_rig: MakeRig) -> None:
    rig = make_rig(timeout_s=0.05, use_hot=False)
    rig.engine.store(TOKENS[:4], some_kv(4))
    rig.storage.flush()
    gate = Gate("load")
    rig.stores[0].fault = gate

    assert not any(retrieved(rig, TOKENS[:4])[0])
    held_bytes = rig.arena.used_bytes
    gate.open()
    rig.storage.close(1.0)

    assert held_bytes > 0
    assert until(lambda: rig.arena.used_bytes == 0)


def test_hung_store_never_holds_up_the_engine(make_rig: MakeRig) -> None:
    rig = make_rig(write_behind_chunks=1, chunks=64, timeout_s=60.0)
    gate = Gate("store")
    rig.stores[0].fault = gate

    for start in range(0, 80, 8):
        rig.engine.store(list(range(start, start + 8)), some_kv(8))

    assert rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason="queue_full") > 0


@pytest.mark.parametrize(("error", "reason"), [(BackendError("no"), "error"), (BackendFullError("full"), "full")])
def test_lost_write_is_counted_by_reason(make_rig: MakeRig, error: Exception, reason: str) -> None:
    rig = make_rig()
    rig.stores[0].fault = refuse("store", error=error)
    rig.engine.store(TOKENS[:4], some_kv(4))
    rig.storage.flush()

    assert rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason=reason) == 1


def test_full_store_does_not_wake_the_monitor(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.stores[0].fault = refuse("store", error=BackendFullError("full"))
    rig.engine.store(TOKENS[:4], some_kv(4))
    rig.storage.flush()

    assert not rig.failures


def test_bypassed_store_is_neither_read_nor_written(make_rig: MakeRig) -> None:
    rig = make_rig()
    calls: list[str] = []
    rig.stores[0].fault = calls.append
    rig.storage.set_backend_bypass("RemoteBackend-0", True, owner="test")

    rig.engine.store(TOKENS, some_kv(10))
    rig.engine.lookup([7, 7, 7, 7])
    rig.storage.flush()

    assert calls == []
    assert rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason="bypassed") == 2


def test_prompt_larger_than_the_arena_keeps_its_head(make_rig: MakeRig) -> None:
    rig, tokens = make_rig(chunks=2, stores=[]), list(range(16))

    assert rig.engine.store(tokens, some_kv(16)) == 8
    assert rig.engine.lookup(tokens) == 8


def test_tail_of_a_prompt_is_evicted_before_its_head(make_rig: MakeRig) -> None:
    rig, tokens = make_rig(chunks=3, stores=[]), list(range(12))
    rig.engine.store(tokens, some_kv(12))

    rig.engine.store([90, 91, 92, 93], some_kv(4))

    assert rig.engine.lookup(tokens) == 8
    assert rig.sample("evicted_chunks_total", backend="LocalCPUBackend") == 1


def test_arena_full_of_leases_refuses_and_counts(make_rig: MakeRig) -> None:
    rig = make_rig(chunks=1, stores=[])
    rig.engine.store(TOKENS[:4], some_kv(4))
    rig.engine.lookup(TOKENS[:4])

    assert rig.engine.store([9, 9, 9, 9], some_kv(4)) == 0
    assert rig.sample("allocation_failures_total") == 1
