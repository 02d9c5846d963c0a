"""What the data path tells the bus: one method an event, silent and almost free without a subscriber."""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmcache_core.contracts.event import EventType
from lmcache_core.contracts.key import ChunkKey, KeyNamespace
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.events.bus import EventBus

_DEVICE = "cpu"
"""Where blocks are; an adapter brings an accelerator's KV there."""

_STACK_FRAMES = 12


class TierName(NamedTuple):
    """A store behind tier 0 as events name it: its kind, never its address, and its place in the order."""

    kind: str
    place: int

    def metadata(self) -> dict[str, Any]:
        """Give the fields that every event about it has."""
        return {"l2_name": self.kind, "adapter_index": self.place}


class LoadTask(NamedTuple):
    """One batch of chunks that a store is asked for, and the request on whose behalf."""

    tier: TierName
    keys: Sequence[ChunkKey]
    number: int
    request_id: str

    def metadata(self) -> dict[str, Any]:
        """Give the fields that every event about it has."""
        return {**self.tier.metadata(), "request_id": self.request_id, "task_id": self.number}


class Part(NamedTuple):
    """Leading chunks of a request, and the tokens in them."""

    chunks: int
    tokens: int


class Journal:
    """Builds events with the metadata that their names promise. Any thread; never raises.

    Token counts are of one request, whatever the number of ranks or layer groups. ``l2_name`` is
    the kind of a store (``redis``, ``file``, ``disk``), never its address.

    Args:
        bus: Where events go.
    """

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._tasks = itertools.count(1)

    # -- requests ---------------------------------------------------------------

    def stored(
        self, namespace: KeyNamespace, chunks: int, request_id: str, engine_id: str = "", *, tokens: int
    ) -> None:
        """A request's new chunks are in tier 0."""
        if self._bus.has_subscribers(EventType.MP_STORE_END):
            self._tell(
                EventType.MP_STORE_END,
                {"stored_count": chunks, **self._transfer(namespace, chunks, tokens, engine_id), **_whose(namespace)},
                request_id,
            )

    def retrieved(
        self, namespace: KeyNamespace, chunks: int, request_id: str, engine_id: str = "", *, tokens: int
    ) -> None:
        """A request got chunks."""
        if self._bus.has_subscribers(EventType.MP_RETRIEVE_END):
            self._tell(
                EventType.MP_RETRIEVE_END,
                {
                    "retrieved_count": chunks,
                    **self._transfer(namespace, chunks, tokens, engine_id),
                    **_whose(namespace),
                },
                request_id,
            )

    def looked_up(
        self,
        namespace: KeyNamespace,
        digests: Sequence[bytes],
        *,
        requested_tokens: int,
        l1: Part,
        found: Part,
        request_id: str,
        shape: tuple[int, ...] = (),
    ) -> None:
        """A request asked for a prefix; `l1` of what was `found` is in tier 0. `shape` is a chunk's."""
        if self._bus.has_subscribers(EventType.MP_LOOKUP):
            self._tell(
                EventType.MP_LOOKUP,
                {
                    "request_id": request_id,
                    "chunk_hashes": tuple(digests),
                    "chunk_size": namespace.chunk_tokens,
                    "seq_len": requested_tokens,
                    "found_count": found.chunks,
                    "dtypes": (namespace.dtype,),
                    "shapes": (shape,),
                    **_whose(namespace),
                },
                request_id,
            )
        if self._bus.has_subscribers(EventType.MP_LOOKUP_PREFETCH_END):
            self._tell(
                EventType.MP_LOOKUP_PREFETCH_END,
                {
                    "found_count": found.chunks,
                    "requested_tokens": requested_tokens,
                    **_hits(l1, found),
                    "early_exit_reason": "" if digests else "empty_chunk_hashes",
                    **_whose(namespace),
                },
                request_id,
            )

    def registered(self, namespace: KeyNamespace, layout: KVLayout, model_type: str) -> None:
        """An engine said what its KV looks like."""
        if self._bus.has_subscribers(EventType.MP_KV_REGISTERED):
            windows = [group.window_tokens for group in layout.groups] or [0]
            self._tell(
                EventType.MP_KV_REGISTERED,
                {
                    "model_name": namespace.model_name,
                    "world_size": namespace.world_size,
                    "kv_dtypes": layout.dtype,
                    "kv_shapes": _shapes(layout, namespace.chunk_tokens),
                    "attn_windows": ",".join(_window(one, namespace.chunk_tokens) for one in windows),
                    "group_kinds": ",".join("attention" for _ in windows),
                    "use_mla": layout.use_mla,
                    "model_type": model_type,
                },
            )

    # -- tiers --------------------------------------------------------------------

    @property
    def hears_evictions(self) -> bool:
        """Whether anybody listens to `l1_evicted`, so that it is worth noting what goes."""
        return self._bus.has_subscribers(EventType.L1_KEYS_EVICTED)

    def l1_evicted(self, gone: Sequence[tuple[KeyNamespace, bytes]], lifespans_s: Sequence[float]) -> None:
        """Tier 0 made room for others: these went, each after so many seconds."""
        if self._bus.has_subscribers(EventType.L1_KEYS_EVICTED):
            keys = [ChunkKey(namespace, digest) for namespace, digest in gone]
            self._tell(EventType.L1_KEYS_EVICTED, {**_named(keys), "lifespans_s": tuple(lifespans_s)})

    def l1_allocation_failed(self, during: str, keys: Sequence[ChunkKey], request_id: str) -> None:
        """Tier 0 had no room for these; `during` is ``l1_store`` or ``l2_prefetch``."""
        if self._bus.has_subscribers(EventType.L1_ALLOCATION_FAILED):
            self._tell(EventType.L1_ALLOCATION_FAILED, {"during": during, **_named(keys)}, request_id)

    def l1_read_failed(self, keys: Sequence[ChunkKey], request_id: str) -> None:
        """A retrieve came when the lease of its lookup had expired, and these were no longer in tier 0."""
        if self._bus.has_subscribers(EventType.L1_READ_FAILED):
            why = {"during": "l1_retrieve", "reason": "not_found"}
            self._tell(EventType.L1_READ_FAILED, {**why, **_named(keys)}, request_id)

    def l2_evicted(self, tier: TierName, chunks: int) -> None:
        """A store made room for new chunks by letting old ones go."""
        if self._bus.has_subscribers(EventType.L2_KEYS_EVICTED):
            self._tell(EventType.L2_KEYS_EVICTED, {**tier.metadata(), "key_count": chunks})

    def l2_stored(self, tier: TierName, keys: Sequence[ChunkKey], *, lost: bool) -> None:
        """A batch was written behind, or lost."""
        if self._bus.has_subscribers(EventType.L2_STORE_COMPLETED):
            self._tell(
                EventType.L2_STORE_COMPLETED,
                {
                    **tier.metadata(),
                    "task_id": self.next_task(),
                    "bytes_transferred": 0 if lost else _bytes(keys),
                    "succeeded_count": 0 if lost else len(keys),
                    "failed_count": len(keys) if lost else 0,
                    **({} if lost else {"key_count_per_salt": dict(Counter(k.namespace.salt_hash for k in keys))}),
                },
            )

    def l2_load_submitted(self, task: LoadTask) -> None:
        """Chunks were asked for."""
        if self._bus.has_subscribers(EventType.L2_LOAD_TASK_SUBMITTED):
            amount = {"key_count": len(task.keys), "total_bytes": _bytes(task.keys)}
            self._tell(EventType.L2_LOAD_TASK_SUBMITTED, {**task.metadata(), **amount}, task.request_id)

    def l2_load_completed(self, task: LoadTask, *, delivered: int, reason: str) -> None:
        """The first `delivered` came, the rest did not: `reason` is ``not_found``, ``corrupt`` or ``other``."""
        if self._bus.has_subscribers(EventType.L2_LOAD_TASK_COMPLETED):
            amount = {"key_count": len(task.keys), "succeeded_count": delivered}
            self._tell(EventType.L2_LOAD_TASK_COMPLETED, {**task.metadata(), **amount}, task.request_id)
        if delivered < len(task.keys):
            self.l2_load_failed(task.tier, task.keys[delivered:], task.request_id, reason)

    def l2_load_failed(self, tier: TierName, keys: Sequence[ChunkKey], request_id: str, reason: str) -> None:
        """A store was to give these and has not; ``l1_oom`` where tier 0 had no room for them."""
        if self._bus.has_subscribers(EventType.L2_PREFETCH_FAILED):
            who = {**tier.metadata(), "request_id": request_id}
            self._tell(EventType.L2_PREFETCH_FAILED, {**who, "reason": reason, **_named(keys)}, request_id)

    def timed_out(self, tier: TierName, message: str, exception_type: str) -> None:
        """A call to a store gave no answer in time."""
        if self._bus.has_subscribers(EventType.TIMEOUT_RAISED):
            self._tell(
                EventType.TIMEOUT_RAISED,
                {
                    **tier.metadata(),
                    "message": message,
                    "exception_type": exception_type,
                    "stacktrace": "".join(traceback.format_stack(limit=_STACK_FRAMES)),
                },
            )

    def next_task(self) -> int:
        """Number a batch, so that its events can be told together."""
        return next(self._tasks)

    def _transfer(self, namespace: KeyNamespace, chunks: int, tokens: int, engine_id: str) -> dict[str, Any]:
        return {
            **_amount(namespace, chunks, tokens),
            "device": _DEVICE,
            "engine_id": engine_id,
            "transfer_key": next(self._tasks),
        }

    def _tell(self, event_type: EventType, metadata: Mapping[str, Any], session_id: str = "") -> None:
        self._bus.publish(event_type, metadata, session_id)


def _named(keys: Sequence[ChunkKey]) -> dict[str, Any]:
    return {"key_count": len(keys), "keys": tuple(map(str, keys))}


def _bytes(keys: Sequence[ChunkKey]) -> int:
    return sum(key.namespace.payload_bytes for key in keys)


def _hits(l1: Part, found: Part) -> dict[str, int]:
    return {
        "hit_tokens": found.tokens,
        "l1_hit_tokens": l1.tokens,
        "l2_hit_tokens": found.tokens - l1.tokens,
        "l1_hit_keys": l1.chunks,
        "l2_hit_keys": found.chunks - l1.chunks,
    }


def _amount(namespace: KeyNamespace, chunks: int, tokens: int) -> dict[str, int]:
    """Bytes of this rank; tokens of the request, which its first rank tells for all."""
    return {"num_tokens": tokens if namespace.rank == 0 else 0, "total_bytes": chunks * namespace.payload_bytes}


def _whose(namespace: KeyNamespace) -> dict[str, str]:
    return {"model_name": namespace.model_name, "cache_salt": namespace.salt_hash}


def _shapes(layout: KVLayout, chunk_tokens: int) -> str:
    """Give the shape of one chunk's KV, of each group by itself."""
    kv, layers, tokens, hidden = layout.kv_shape(chunk_tokens)
    groups = [group.num_layers for group in layout.groups] or [layers]
    return ";".join(f"{kv}x{one}x{tokens}x{hidden}" for one in groups)


def _window(window_tokens: int, chunk_tokens: int) -> str:
    """Give a window in chunks; -1 for all."""
    return str(-(-window_tokens // chunk_tokens)) if window_tokens else "-1"
