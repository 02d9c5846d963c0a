"""What the data path tells the bus: one method an event, silent and almost free without a subscriber."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmcache_core.contracts.event import EventType
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.events.bus import EventBus


class Journal:
    """Builds events with the metadata that their names promise. Any thread; never raises.

    Token counts are of one request, whatever the number of ranks or layer groups. ``l2_name`` is
    the kind of a store (``redis``, ``file``, ``disk``), never its address.

    Args:
        bus: Where events go.
    """

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus

    # -- requests ---------------------------------------------------------------

    def stored(self, namespace: KeyNamespace, chunks: int, request_id: str) -> None:
        """A request's new chunks are in tier 0."""
        if self._bus.has_subscribers(EventType.MP_STORE_END):
            self._tell(
                EventType.MP_STORE_END,
                {"stored_count": chunks, **_amount(namespace, chunks), **_whose(namespace)},
                request_id,
            )

    def retrieved(self, namespace: KeyNamespace, chunks: int, request_id: str) -> None:
        """A request got chunks."""
        if self._bus.has_subscribers(EventType.MP_RETRIEVE_END):
            self._tell(
                EventType.MP_RETRIEVE_END,
                {"retrieved_count": chunks, **_amount(namespace, chunks), **_whose(namespace)},
                request_id,
            )

    def looked_up(
        self,
        namespace: KeyNamespace,
        digests: Sequence[bytes],
        *,
        requested_tokens: int,
        l1_chunks: int,
        found_chunks: int,
        request_id: str,
    ) -> None:
        """A request asked for a prefix; `l1_chunks` of the `found_chunks` are in tier 0."""
        if self._bus.has_subscribers(EventType.MP_LOOKUP):
            self._tell(
                EventType.MP_LOOKUP,
                {
                    "request_id": request_id,
                    "chunk_hashes": tuple(digests),
                    "chunk_size": namespace.chunk_tokens,
                    "seq_len": requested_tokens,
                    "found_count": found_chunks,
                    **_whose(namespace),
                },
                request_id,
            )
        if self._bus.has_subscribers(EventType.MP_LOOKUP_PREFETCH_END):
            self._tell(
                EventType.MP_LOOKUP_PREFETCH_END,
                {
                    "found_count": found_chunks,
                    "requested_tokens": requested_tokens,
                    "hit_tokens": found_chunks * namespace.chunk_tokens,
                    "l1_hit_tokens": l1_chunks * namespace.chunk_tokens,
                    "l2_hit_tokens": (found_chunks - l1_chunks) * namespace.chunk_tokens,
                    "l1_hit_keys": l1_chunks,
                    "l2_hit_keys": found_chunks - l1_chunks,
                    "early_exit_reason": "" if digests else "empty_chunk_hashes",
                    **_whose(namespace),
                },
                request_id,
            )

    def registered(self, namespace: KeyNamespace, layout: KVLayout, model_type: str) -> None:
        """An engine said what its KV looks like."""
        if self._bus.has_subscribers(EventType.MP_KV_REGISTERED):
            shape = "x".join(str(size) for size in layout.kv_shape(namespace.chunk_tokens))
            self._tell(
                EventType.MP_KV_REGISTERED,
                {
                    "model_name": namespace.model_name,
                    "world_size": namespace.world_size,
                    "kv_dtypes": layout.dtype,
                    "kv_shapes": shape,
                    "attn_windows": "-1",
                    "group_kinds": "attention",
                    "use_mla": layout.use_mla,
                    "model_type": model_type,
                },
            )

    # -- tiers --------------------------------------------------------------------

    def l1_evicted(self, lifespans_s: Sequence[float]) -> None:
        """Tier 0 made room: so many chunks went, each after so many seconds."""
        if lifespans_s and self._bus.has_subscribers(EventType.L1_KEYS_EVICTED):
            self._tell(EventType.L1_KEYS_EVICTED, {"key_count": len(lifespans_s), "lifespans_s": tuple(lifespans_s)})

    def l1_allocation_failed(self, during: str, chunks: int) -> None:
        """Tier 0 had no room; `during` is ``l1_store`` or ``l2_prefetch``."""
        if self._bus.has_subscribers(EventType.L1_ALLOCATION_FAILED):
            self._tell(EventType.L1_ALLOCATION_FAILED, {"during": during, "key_count": chunks})

    def l2_evicted(self, kind: str, chunks: int) -> None:
        """A store made room for new chunks by letting old ones go."""
        if self._bus.has_subscribers(EventType.L2_KEYS_EVICTED):
            self._tell(EventType.L2_KEYS_EVICTED, {"l2_name": kind, "key_count": chunks})

    def l2_stored(self, kind: str, *, succeeded: int, failed: int, total_bytes: int) -> None:
        """A batch was written behind, or lost."""
        if self._bus.has_subscribers(EventType.L2_STORE_COMPLETED):
            self._tell(
                EventType.L2_STORE_COMPLETED,
                {
                    "l2_name": kind,
                    "bytes_transferred": total_bytes,
                    "succeeded_count": succeeded,
                    "failed_count": failed,
                },
            )

    def l2_load_submitted(self, kind: str, chunks: int, total_bytes: int) -> None:
        """Chunks were asked for, so many bytes of KV."""
        if self._bus.has_subscribers(EventType.L2_LOAD_TASK_SUBMITTED):
            self._tell(
                EventType.L2_LOAD_TASK_SUBMITTED,
                {"l2_name": kind, "key_count": chunks, "total_bytes": total_bytes},
            )

    def l2_load_completed(self, kind: str, *, asked: int, delivered: int, reason: str) -> None:
        """Chunks came, or did not: `reason` is ``""``, ``not_found``, ``timeout``, ``corrupt`` or ``other``."""
        if self._bus.has_subscribers(EventType.L2_LOAD_TASK_COMPLETED):
            self._tell(
                EventType.L2_LOAD_TASK_COMPLETED,
                {"l2_name": kind, "key_count": asked, "succeeded_count": delivered},
            )
        if delivered < asked and self._bus.has_subscribers(EventType.L2_PREFETCH_FAILED):
            self._tell(
                EventType.L2_PREFETCH_FAILED, {"l2_name": kind, "reason": reason, "key_count": asked - delivered}
            )

    def l2_load_refused(self, chunks: int) -> None:
        """Tier 0 had no room for chunks that a store has."""
        if self._bus.has_subscribers(EventType.L2_PREFETCH_FAILED):
            self._tell(EventType.L2_PREFETCH_FAILED, {"l2_name": "", "reason": "l1_oom", "key_count": chunks})

    def timed_out(self, message: str, exception_type: str) -> None:
        """A call to a store gave no answer in time."""
        if self._bus.has_subscribers(EventType.TIMEOUT_RAISED):
            self._tell(EventType.TIMEOUT_RAISED, {"message": message, "exception_type": exception_type})

    def _tell(self, event_type: EventType, metadata: Mapping[str, Any], session_id: str = "") -> None:
        self._bus.publish(event_type, metadata, session_id)


def _amount(namespace: KeyNamespace, chunks: int) -> dict[str, int]:
    """Bytes of this rank; tokens of the request, which its first rank tells for all."""
    tokens = chunks * namespace.chunk_tokens if namespace.rank == 0 else 0
    return {"num_tokens": tokens, "total_bytes": chunks * namespace.payload_bytes}


def _whose(namespace: KeyNamespace) -> dict[str, str]:
    return {"model_name": namespace.model_name, "cache_salt": namespace.salt_hash}
