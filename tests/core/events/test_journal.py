"""Events of the data path, as a subscriber sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.engine_calls import settle
from tests.memory_store import LAYOUT, Rig, refuse

from lmcache_core import BackendError, ChunkKey, Event, EventSubscriber, EventType, KVGroup, LoadResult
from lmcache_core.contracts.key import hash_salt
from lmcache_core.events.journal import TierName
from lmcache_core.storage.fetch import Promised
from lmcache_core.telemetry.attribution import architecture_of
from lmcache_core.tokens.hashing import token_array

CHUNK_BYTES = LAYOUT.bytes_per_token * 4


class Notes(EventSubscriber):
    """Keeps every event of some kinds."""

    def __init__(self, *kinds: EventType) -> None:
        self._kinds = kinds
        self.events: list[Event] = []

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        return dict.fromkeys(self._kinds, self.events.append)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def seen(rig: Rig, *kinds: EventType, of: Callable[[], object]) -> list[Mapping[str, Any]]:
    notes = Notes(*kinds)
    rig.bus.register_subscriber("notes", notes)
    of()
    rig.storage.flush()
    rig.bus.stop(5.0)
    return [event.metadata for event in notes.events]


def kv(tokens: int) -> torch.Tensor:
    return torch.ones(LAYOUT.kv_shape(tokens))


def keys_of(rig: Rig, tokens: Sequence[int]) -> tuple[str, ...]:
    run = rig.format.run(token_array(tokens), "", "")
    return tuple(str(key) for key in run.keys(0, len(run.digests)))


def test_store_tells_tokens_once(rig: Rig) -> None:
    told = seen(rig, EventType.MP_STORE_END, of=lambda: rig.engine.store(range(10), kv(10), salt="s"))

    assert told == [
        {
            "stored_count": 2,
            "num_tokens": 8,
            "total_bytes": 2 * CHUNK_BYTES,
            "device": "cpu",
            "engine_id": "rig",
            "transfer_key": 1,
            "model_name": "m",
            "cache_salt": hash_salt("s"),
        }
    ]


def test_lookup_tells_the_tiers_apart(rig: Rig) -> None:
    rig.engine.store(range(8), kv(8))
    settle(rig)
    rig.local.clear()
    rig.engine.retrieve(range(4), kv(4))

    (told,) = seen(rig, EventType.MP_LOOKUP_PREFETCH_END, of=lambda: rig.engine.lookup(range(12)))

    assert {name: told[name] for name in ("requested_tokens", "hit_tokens", "l1_hit_tokens", "l2_hit_tokens")} == {
        "requested_tokens": 12,
        "hit_tokens": 8,
        "l1_hit_tokens": 4,
        "l2_hit_tokens": 4,
    }


def test_lookup_of_less_than_a_chunk_says_why_it_ended_early(rig: Rig) -> None:
    (told,) = seen(rig, EventType.MP_LOOKUP_PREFETCH_END, of=lambda: rig.engine.lookup([1]))

    assert told["early_exit_reason"] == "empty_chunk_hashes"


def test_lookup_tells_every_digest_in_order(rig: Rig) -> None:
    (told,) = seen(rig, EventType.MP_LOOKUP, of=lambda: rig.engine.lookup(range(8), request_id="r"))

    assert (len(told["chunk_hashes"]), told["request_id"], told["chunk_size"]) == (2, "r", 4)


def test_lookup_tells_the_shape_of_a_chunk(rig: Rig) -> None:
    (told,) = seen(rig, EventType.MP_LOOKUP, of=lambda: rig.engine.lookup(range(8)))

    assert (told["dtypes"], told["shapes"]) == (("float32",), (LAYOUT.kv_shape(4),))


def test_tokens_of_a_short_retrieve_are_those_delivered(rig: Rig) -> None:
    rig.engine.store(range(8), kv(8))
    settle(rig)
    rig.local.clear()
    rig.stores[0].results[list(rig.stores[0].frames)[1]] = LoadResult.FAILED

    (told,) = seen(rig, EventType.MP_RETRIEVE_END, of=lambda: rig.engine.retrieve(range(8), kv(8)))

    assert (told["retrieved_count"], told["num_tokens"]) == (1, 4)


def test_write_behind_tells_success_and_failure(rig: Rig) -> None:
    def store_twice() -> None:
        rig.engine.store(range(4), kv(4))
        rig.storage.flush()
        rig.stores[0].fault = refuse("store", error=BackendError("no"))
        rig.engine.store([9, 9, 9, 9], kv(4))

    told = seen(rig, EventType.L2_STORE_COMPLETED, of=store_twice)

    assert [
        (one["l2_name"], one["succeeded_count"], one["failed_count"], one["bytes_transferred"]) for one in told
    ] == [
        ("memory", 1, 0, CHUNK_BYTES),
        ("memory", 0, 1, 0),
    ]


def test_write_behind_tells_how_many_chunks_of_each_tenant_it_kept(rig: Rig) -> None:
    def store_and_fail() -> None:
        rig.engine.store(range(4), kv(4), salt="s")
        rig.storage.flush()
        rig.stores[0].fault = refuse("store", error=BackendError("no"))
        rig.engine.store([9, 9, 9, 9], kv(4))

    told = seen(rig, EventType.L2_STORE_COMPLETED, of=store_and_fail)

    assert [one.get("key_count_per_salt") for one in told] == [{hash_salt("s"): 1}, None]


def test_load_tells_what_was_asked_and_what_came(rig: Rig) -> None:
    rig.engine.store(range(8), kv(8))
    settle(rig)
    rig.local.clear()
    digest = list(rig.stores[0].frames)[1]
    rig.stores[0].results[digest] = LoadResult.CORRUPT
    memory = {"l2_name": "memory", "adapter_index": 0, "request_id": "r"}
    lacking = str(ChunkKey(rig.namespace(), digest))

    told = seen(
        rig,
        EventType.L2_LOAD_TASK_SUBMITTED,
        EventType.L2_LOAD_TASK_COMPLETED,
        EventType.L2_PREFETCH_FAILED,
        of=lambda: rig.engine.retrieve(range(8), kv(8), request_id="r"),
    )

    assert told == [
        {**memory, "task_id": told[0]["task_id"], "key_count": 2, "total_bytes": 2 * CHUNK_BYTES},
        {**memory, "task_id": told[0]["task_id"], "key_count": 2, "succeeded_count": 1},
        {**memory, "reason": "corrupt", "key_count": 1, "keys": (lacking,)},
    ]


def test_eviction_tells_but_clear_does_not(rig: Rig) -> None:
    def fill_twice_and_clear() -> None:
        rig.engine.store(range(32), kv(32))
        settle(rig)
        rig.engine.store([7] * 8, kv(8))
        rig.engine.clear()

    told = seen(rig, EventType.L1_KEYS_EVICTED, of=fill_twice_and_clear)

    assert sum(one["key_count"] for one in told) == 2
    assert all(0 <= lifespan_s < 60 for one in told for lifespan_s in one["lifespans_s"])
    assert [key for one in told for key in one["keys"]] == list(keys_of(rig, range(32))[:5:-1])


def test_full_arena_tells_during_what(rig: Rig) -> None:
    rig.engine.store(range(32), kv(32))
    settle(rig)
    rig.engine.lookup(range(32))

    told = seen(rig, EventType.L1_ALLOCATION_FAILED, of=lambda: rig.engine.store([7] * 8, kv(8)))

    assert told == [{"during": "l1_store", "key_count": 2, "keys": keys_of(rig, [7] * 8)}]


def test_late_retrieve_tells_which_chunks_its_lookup_had_found(rig: Rig) -> None:
    rig.storage._promises._ttl_s = 0.0
    rig.stores[0].fault = refuse("store", error=BackendError("no"))
    rig.engine.store(range(16), kv(16))
    settle(rig)
    rig.engine.lookup(range(16), request_id="late")

    def come_too_late() -> None:
        rig.storage.sweep()
        rig.engine.store(range(100, 120), kv(20))  # takes the room of the last one
        settle(rig)
        rig.engine.retrieve(range(16), kv(16), request_id="late")
        rig.engine.retrieve(range(16), kv(16), request_id="late")

    told = seen(rig, EventType.L1_READ_FAILED, of=come_too_late)

    lost = keys_of(rig, range(16))[3:]
    assert told == [{"during": "l1_retrieve", "reason": "not_found", "key_count": 1, "keys": lost}]
    assert rig.sample("num_short_tokens_total") == 4


def test_late_retrieve_of_what_is_still_there_lacks_nothing(rig: Rig) -> None:
    rig.storage._promises._ttl_s = 0.0
    rig.engine.store(range(16), kv(16))
    rig.engine.lookup(range(16), request_id="late")
    rig.storage.sweep()

    def come_too_late() -> None:
        rig.engine.retrieve(range(16), kv(16), request_id="late")

    assert seen(rig, EventType.L1_READ_FAILED, of=come_too_late) == []


def test_lookup_that_is_repeated_makes_up_for_an_expired_one(rig: Rig) -> None:
    rig.storage._promises._ttl_s = 0.0
    rig.engine.store(range(16), kv(16))

    def look_twice() -> None:
        rig.engine.lookup(range(16), request_id="r")
        rig.storage.sweep()
        rig.engine.lookup(range(16), request_id="r")
        rig.engine.retrieve(range(16), kv(16), request_id="r")
        rig.engine.clear()
        rig.engine.retrieve(range(16), kv(16), request_id="r")

    assert seen(rig, EventType.L1_READ_FAILED, of=look_twice) == []


def test_retrieve_lacks_nothing_that_its_last_lookup_had_not_found(rig: Rig) -> None:
    rig.storage._promises._ttl_s = 0.0
    rig.stores[0].fault = refuse("store", error=BackendError("no"))
    rig.engine.store(range(16), kv(16))
    settle(rig)

    def look_twice() -> None:
        rig.engine.lookup(range(16), request_id="r")
        rig.storage.sweep()
        rig.engine.clear()
        rig.engine.lookup(range(16), request_id="r")
        rig.engine.retrieve(range(16), kv(16), request_id="r")

    assert seen(rig, EventType.L1_READ_FAILED, of=look_twice) == []
    assert rig.sample("num_short_tokens_total") == 0


def test_retrieve_without_a_request_id_is_late_for_no_lookup(rig: Rig) -> None:
    rig.storage._promises._ttl_s = 0.0
    rig.stores[0].fault = refuse("store", error=BackendError("no"))
    rig.engine.store(range(16), kv(16))
    settle(rig)
    rig.engine.lookup(range(16))
    rig.storage.sweep()
    rig.engine.clear()

    assert seen(rig, EventType.L1_READ_FAILED, of=lambda: rig.engine.retrieve(range(16), kv(16))) == []
    assert rig.sample("num_short_tokens_total") == 0


def test_retrieve_in_the_midst_of_a_sweep_is_told_what_it_lost(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    promises = rig.storage._promises
    promises._ttl_s = 0.0
    rig.stores[0].fault = refuse("store", error=BackendError("no"))
    rig.engine.store(range(16), kv(16))
    settle(rig)
    rig.engine.lookup(range(16), request_id="r")
    late = threading.Thread(target=rig.engine.retrieve, args=(range(16), kv(16)), kwargs={"request_id": "r"})
    expire = promises.expire

    def expire_and_be_overtaken() -> list[tuple[Hashable, Promised]]:
        expired = expire()
        rig.engine.clear()
        late.start()
        late.join(0.2)  # so long as it takes if it does not wait for the sweep
        return expired

    def sweep() -> None:
        rig.storage.sweep()
        late.join()

    monkeypatch.setattr(promises, "expire", expire_and_be_overtaken)
    (told,) = seen(rig, EventType.L1_READ_FAILED, of=sweep)

    assert told["keys"] == keys_of(rig, range(16))


def test_batch_that_cannot_be_sealed_is_told_as_failed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(rig.codec), "seal")

    (told,) = seen(rig, EventType.L2_STORE_COMPLETED, of=lambda: rig.engine.store(range(8), kv(8)))

    assert (told["succeeded_count"], told["failed_count"]) == (0, 2)


def test_load_without_room_tells_why(rig: Rig) -> None:
    rig.engine.store(range(8), kv(8))
    settle(rig)
    rig.local.clear()
    rig.engine.store(range(100, 132), kv(32))
    settle(rig)
    rig.engine.lookup(range(100, 132))

    kinds = EventType.L1_ALLOCATION_FAILED, EventType.L2_PREFETCH_FAILED
    told = seen(rig, *kinds, of=lambda: rig.engine.retrieve(range(8), kv(8), request_id="r"))

    lacking = {"key_count": 2, "keys": keys_of(rig, range(8))}
    store = {"l2_name": "memory", "adapter_index": 0, "request_id": "r"}
    assert told == [{"during": "l2_prefetch", **lacking}, {**store, "reason": "l1_oom", **lacking}]


def test_eviction_behind_tier_0_tells_the_kind_of_store(rig: Rig) -> None:
    told = seen(rig, EventType.L2_KEYS_EVICTED, of=lambda: rig.journal.l2_evicted(TierName("disk", 1), 3))

    assert told == [{"l2_name": "disk", "adapter_index": 1, "key_count": 3}]


def test_a_call_without_an_answer_tells_where_it_was_made(rig: Rig) -> None:
    tier = TierName("disk", 1)
    (told,) = seen(
        rig, EventType.TIMEOUT_RAISED, of=lambda: rig.journal.timed_out(tier, "too late", "BackendTimeoutError")
    )

    assert (told["message"], told["exception_type"]) == ("too late", "BackendTimeoutError")
    assert (told["l2_name"], told["adapter_index"]) == ("disk", 1)
    assert "test_a_call_without_an_answer_tells_where_it_was_made" in told["stacktrace"]


def test_registration_tells_the_shape(rig: Rig) -> None:
    (told,) = seen(rig, EventType.MP_KV_REGISTERED, of=lambda: rig.journal.registered(rig.namespace(), LAYOUT, "llama"))

    assert (told["kv_shapes"], told["kv_dtypes"], told["attn_windows"], told["model_type"]) == (
        "2x2x4x8",
        "float32",
        "-1",
        "llama",
    )


def test_registration_tells_each_group_of_a_hybrid_model(rig: Rig) -> None:
    groups = (
        KVGroup(name="near", kind="sliding_window", num_layers=1, window_tokens=6),
        KVGroup(name="far", kind="full", num_layers=1),
    )
    layout = replace(LAYOUT, groups=groups)
    (told,) = seen(rig, EventType.MP_KV_REGISTERED, of=lambda: rig.journal.registered(rig.namespace(), layout, "x"))

    assert (told["kv_shapes"], told["attn_windows"], told["group_kinds"]) == (
        "2x1x4x8;2x1x4x8",
        "2,-1",
        "attention,attention",
    )
    assert architecture_of(told) == "full+swa"
