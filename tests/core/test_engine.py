from collections.abc import Callable, Iterator

import pytest
import torch
from tests.memory_store import CHUNK_TOKENS, LAYOUT, Gate, MemoryStore, Rig, refuse

from lmcache_core import BackendError, BackendFullError, KVGroup, KVLayout, LayoutError, LoadResult

MakeRig = Callable[..., Rig]
TOKENS = list(range(10))  # two full chunks and a rest


@pytest.fixture
def make_rig() -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**changes: object) -> Rig:
        rigs.append(Rig(**changes))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def some_kv(tokens: int, layout: KVLayout = LAYOUT) -> torch.Tensor:
    shape = layout.kv_shape(tokens)
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(getattr(torch, layout.dtype))


def retrieved(rig: Rig, tokens: list[int], **how: str) -> tuple[list[bool], torch.Tensor]:
    out = torch.zeros(rig.layout.kv_shape(len(tokens)), dtype=getattr(torch, rig.layout.dtype))
    return rig.engine.retrieve(tokens, out, **how).tolist(), out


def forget_local(rig: Rig) -> None:
    rig.storage.flush()
    rig.local.clear()


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


def until(true: Callable[[], bool]) -> bool:
    import time

    end = time.monotonic() + 5
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return true()


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


# -- gate and refusals ----------------------------------------------------------


def test_unhealthy_cache_answers_with_no_ops(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.healthy = False

    assert rig.engine.store([1, 2, 3, 4], some_kv(4)) == 0
    assert rig.engine.lookup(TOKENS) == 0
    assert retrieved(rig, TOKENS)[0] == [False] * 10
    assert [rig.sample("degraded_requests_total", operation=name) for name in ("store", "lookup", "retrieve")] == [
        1,
        1,
        1,
    ]


def test_unhealthy_warning_is_rate_limited(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    rig = make_rig()
    rig.healthy = False
    for _ in range(100):
        rig.engine.lookup(TOKENS)

    assert [record.getMessage() for record in caplog.records] == [
        "the cache is unhealthy, lookup is skipped and the engine recomputes (at most one such line in 10 s)"
    ]


@pytest.mark.parametrize(
    ("kv", "sentence"),
    [
        (torch.zeros(2, 2, 9, 8), "kv must have shape [2, 2, 10, 8] for 10 tokens, got [2, 2, 9, 8]"),
        (torch.zeros(2, 2, 10, 8, dtype=torch.float16), "kv must be float32 as registered, got float16"),
        ([1.0], "kv must be a torch tensor, got list"),
    ],
)
def test_wrong_tensor_is_refused_in_a_sentence(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture, kv: object, sentence: str
) -> None:
    rig = make_rig()

    assert rig.engine.store(TOKENS, kv) == 0
    assert caplog.messages == [f"store refused: {sentence} (at most one such line in 10 s)"]
    assert rig.sample("request_errors_total", operation="store", reason="LayoutError") == 1
    assert rig.arena.used_bytes == 0


def test_wrong_tokens_are_a_counted_miss(make_rig: MakeRig) -> None:
    rig = make_rig()

    assert rig.engine.lookup([-1] * 4) == 0
    assert rig.sample("request_errors_total", operation="lookup", reason="ValueError") == 1


def test_wrong_out_tensor_is_all_false(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))

    assert not rig.engine.retrieve(TOKENS, torch.zeros(1)).any()


def test_copy_that_fails_half_way_leaves_nothing_behind(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(stores=[])
    monkeypatch.setattr(rig.engine._adapter, "gather", refuse_copy)

    assert rig.engine.store(TOKENS, some_kv(10)) == 0
    assert rig.arena.used_bytes == 0
    assert rig.local.chunks == 0


def refuse_copy(*_: object) -> None:
    raise RuntimeError("cuda error")


def test_scatter_that_fails_gives_the_prefix_before_it(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS[:8], some_kv(8))
    forget_local(rig)
    scatter = rig.engine._adapter.scatter

    def fail_at_4(payload: memoryview, kv: torch.Tensor, start: int) -> None:
        if start == CHUNK_TOKENS:
            raise RuntimeError("cuda error")
        scatter(payload, kv, start)

    monkeypatch.setattr(rig.engine._adapter, "scatter", fail_at_4)

    assert retrieved(rig, TOKENS[:8])[0] == [True] * 4 + [False] * 4
    assert until(lambda: rig.arena.used_bytes == 0 or rig.local.chunks > 0)


def test_layout_error_is_a_value_error() -> None:
    assert issubclass(LayoutError, ValueError)


# -- metrics and events ------------------------------------------------------------


def test_tokens_are_counted_once_a_request(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.engine.lookup(TOKENS)
    retrieved(rig, TOKENS)
    rig.engine.lookup([5] * 6)

    names = ("stored", "requested", "hit", "retrieved")
    assert [rig.sample(f"num_{name}_tokens_total") for name in names] == [8, 16, 8, 8]


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
