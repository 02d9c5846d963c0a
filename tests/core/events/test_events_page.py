"""Every event that is published has the fields that its page names, and those that LMCache's users know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from tests.engine_calls import settle
from tests.memory_store import LAYOUT, MemoryStore, Rig, refuse

from lmcache_core import BackendError, Event, EventSubscriber, EventType, LoadResult

PAGE = (Path(__file__).parents[3] / "docs/reference/events.md").read_text()
ROW = re.compile(r"^\| `(?P<name>[A-Z]\w+)` \| (?P<fields>[^|]+) \|", re.MULTILINE)
FIELDS = {row["name"]: set(re.findall(r"`(\w+)`", row["fields"])) for row in ROW.finditer(PAGE)}

PEER = {
    "MP_STORE_END": "device stored_count engine_id model_name total_bytes num_tokens transfer_key",
    "MP_RETRIEVE_END": "device retrieved_count engine_id model_name total_bytes num_tokens transfer_key cache_salt",
    "MP_LOOKUP": "request_id chunk_hashes model_name chunk_size seq_len dtypes shapes",
    "MP_LOOKUP_PREFETCH_END": "found_count requested_tokens hit_tokens l1_hit_tokens l2_hit_tokens l1_hit_keys"
    " l2_hit_keys early_exit_reason model_name cache_salt",
    "L1_KEYS_EVICTED": "keys",
    "L1_ALLOCATION_FAILED": "during keys",
    "L1_READ_FAILED": "during reason keys",
    "L2_STORE_COMPLETED": "adapter_index task_id l2_name bytes_transferred succeeded_count failed_count"
    " key_count_per_salt",
    "L2_LOAD_TASK_SUBMITTED": "request_id adapter_index task_id l2_name key_count total_bytes",
    "L2_KEYS_EVICTED": "key_count",
    "L2_PREFETCH_FAILED": "reason keys",
    "TIMEOUT_RAISED": "message exception_type stacktrace",
}
"""Fields of LMCache 0.5.6 in its multi-process mode; `MP_KV_REGISTERED` and a load's counts are ours."""


class EvictingStore(MemoryStore):
    """Says that it let one chunk go for each that it took."""

    def evicted_chunks(self) -> int:
        return len(self.frames)


class Witness(EventSubscriber):
    """Keeps the fields of each kind of event."""

    def __init__(self) -> None:
        self.fields: dict[str, list[set[str]]] = {}

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        return dict.fromkeys(EventType, self._note)

    def _note(self, event: Event) -> None:
        self.fields.setdefault(EventType(event.event_type).name, []).append(set(event.metadata))


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def kv(tokens: int) -> torch.Tensor:
    return torch.ones(LAYOUT.kv_shape(tokens))


def live_a_life(rig: Rig, clock: Clock) -> None:
    """Store, hit, miss, lose, run out of room and of time: whatever can be told of."""
    store = rig.stores[0]
    rig.journal.registered(rig.namespace(), LAYOUT, "llama")
    rig.engine.store(range(32), kv(32))
    settle(rig)
    rig.engine.lookup(range(32), request_id="r")  # leases all there is
    rig.engine.store([7] * 4, kv(4))
    clock.now_s = 400.0
    rig.storage.sweep()
    rig.engine.store([9] * 32, kv(32))  # evicts what the lookup had promised
    settle(rig)
    rig.engine.retrieve(range(32), kv(32), request_id="r")
    rig.local.clear()
    store.results[next(iter(store.frames))] = LoadResult.CORRUPT
    rig.engine.retrieve(range(8), kv(8))
    store.fault = refuse("store", error=BackendError("no"))
    rig.engine.store([5] * 4, kv(4))
    rig.storage.flush()
    rig.journal.timed_out(rig.tiers[0].known_as, "late", "BackendTimeoutError")


@pytest.fixture(scope="module")
def published() -> Iterator[dict[str, list[set[str]]]]:
    clock, witness = Clock(), Witness()
    rig = Rig(stores=[EvictingStore()], lease_ttl_s=300.0)
    rig.storage._promises._clock = clock
    rig.bus.register_subscriber("witness", witness)
    live_a_life(rig, clock)
    rig.bus.stop(5.0)
    yield witness.fields
    rig.close()


def test_page_names_all_events() -> None:
    assert sorted(FIELDS) == sorted(EventType.__members__)


def test_a_life_publishes_all_events(published: dict[str, list[set[str]]]) -> None:
    assert sorted(published) == sorted(EventType.__members__)


@pytest.mark.parametrize("name", FIELDS)
def test_events_have_the_fields_of_the_page(name: str, published: dict[str, list[set[str]]]) -> None:
    optional = {"key_count_per_salt"} if name == "L2_STORE_COMPLETED" else set()

    assert set().union(*published[name]) == FIELDS[name]
    assert all(fields | optional == FIELDS[name] for fields in published[name])


@pytest.mark.parametrize("name", PEER)
def test_events_have_the_fields_that_users_of_the_peer_know(name: str) -> None:
    assert set(PEER[name].split()) <= FIELDS[name]
