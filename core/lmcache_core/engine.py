"""Store, lookup, retrieve: what an inference engine calls, and the gate before them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from lmcache_core.access.chunk_access import ChunkAccess
from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.pending import AsyncLookup, FinishedLookup
from lmcache_core.contracts.cache import Cleared, KVAdapter, Mask, PendingLookup
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.run import ChunkRun
from lmcache_core.tokens.hashing import token_array

log = logging.getLogger(__name__)

T = TypeVar("T")
_LEAST_WARNING_GAP_S = 10.0


class CacheEngine:
    """The cache as an inference engine sees it; a `KVCache`. Safe from several threads.

    No method raises an `Exception`: what goes wrong is a miss or a no-op with a sentence in the log
    and a count in ``lmcache:request_errors`` or ``lmcache:degraded_requests``.

    Args:
        access: Where the chunks are.
        make_adapter: Makes the adapter for the engine's tensors, given the tokens in a chunk.
        metrics: Families to count errors in.
        timeout_s: Longest a lookup or retrieve may take, ``blocking_timeout_secs``.
    """

    def __init__(
        self,
        access: ChunkAccess,
        *,
        make_adapter: Callable[[int], KVAdapter],
        metrics: CacheMetrics,
        timeout_s: float,
    ) -> None:
        self._access = access
        self._make_adapter = make_adapter
        self.is_healthy = access.is_healthy
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._adapters: dict[int, KVAdapter] = {}
        if access.format is not None:  # a tensor library that is not installed is said at start-up
            self._adapter(access.format.chunk_tokens)
        self._disowned = False
        self._warn_lock = threading.Lock()
        self._warn_after: dict[str, float] = {}

    def disown(self) -> None:
        """Serve nothing more: in a forked child the tiers, their threads and their locks are the parent's."""
        self._disowned = True
        self.is_healthy = _never

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk; 0 while that is not known."""
        chunk_format = self._access.format
        return 0 if chunk_format is None else chunk_format.chunk_tokens

    @property
    def save_unfull_chunk(self) -> bool:
        """Whether the rest of a sequence that fills no chunk is kept and found too."""
        chunk_format = self._access.format
        return chunk_format is not None and chunk_format.save_unfull_chunk

    # -- the face -------------------------------------------------------------

    def store(
        self, tokens: Any, kv: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> int:
        """Keep the KV of all full chunks of a sequence that are not kept yet, and of the rest if that is kept.

        Args:
            tokens: Whole numbers, ``[n]``.
            kv: ``[2, layers, n, heads * head_size]``, or ``[1, ...]`` for MLA; or what the adapter takes.
            salt: The tenant's; chunks of different salts never meet.
            variant: Any further identity of the KV, such as a LoRA adapter's name.
            request_id: For events.
            skip_tokens: Leading tokens whose KV the caller does not have, or not all of it: no chunk
                with any of them is kept.

        Returns:
            Tokens newly kept; 0 when unhealthy or refused.
        """
        if not self.is_healthy():
            return self._degraded("store", 0)
        try:
            return self._store(tokens, kv, salt=salt, variant=variant, request_id=request_id, skip_tokens=skip_tokens)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("store", error, 0)

    def lookup(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> int:
        """Count the leading tokens that a retrieve will deliver, and hold them for it.

        A lookup that no `retrieve` or `release` of the same tokens follows is let go after
        ``pin_timeout_sec``.

        Returns:
            Tokens: a multiple of the chunk size, or all; 0 when unhealthy.
        """
        if not self.is_healthy():
            return self._degraded("lookup", 0)
        try:
            runs, chunk_tokens = self._runs(tokens, salt, variant)
            deadline = time.monotonic() + self._timeout_s
            found = self._access.lookup(runs, request_id, requested_tokens=len(tokens), deadline=deadline)
            return min(found.chunks * chunk_tokens, len(tokens))
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("lookup", error, 0)

    def lookup_async(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> PendingLookup:
        """Begin a lookup that also loads into memory what further tiers have.

        Returns:
            Ask it, or wait for it; it gives 0 where `lookup` would.
        """
        if not self.is_healthy():
            return FinishedLookup(self._degraded("lookup", 0))
        try:
            runs, chunk_tokens = self._runs(tokens, salt, variant)
            deadline = time.monotonic() + self._timeout_s
            pending = self._access.prefetch(runs, request_id, requested_tokens=len(tokens), deadline=deadline)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return FinishedLookup(self._refused("lookup", error, 0))
        refused = partial(self._refused, "lookup", default=0)
        return AsyncLookup(pending, chunk_tokens, deadline, refused, most_tokens=len(tokens))

    def retrieve(
        self, tokens: Any, out: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> Mask:
        """Fill the KV of the leading tokens that are kept.

        Args:
            tokens: Whole numbers, ``[n]``.
            out: Like `store`'s ``kv``; written where the mask is True and, after an error inside a
                copy, possibly in the one chunk behind.
            salt: The tenant's.
            variant: As for `store`.
            request_id: The lookup's, if that had one.
            skip_tokens: Leading tokens whose KV the caller has; whole chunks of them are neither
                loaded nor copied, and are True in the mask.

        Returns:
            ``bool [n]``: True for a prefix, False behind it. All False when unhealthy.
        """
        if not self.is_healthy():
            return self._degraded("retrieve", _no_tokens(tokens))
        delivered = _Delivery()
        try:
            self._retrieve(
                tokens, out, delivered, salt=salt, variant=variant, request_id=request_id, skip_tokens=skip_tokens
            )
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            self._refused("retrieve", error, None)
        mask = _no_tokens(tokens)
        mask[: delivered.tokens] = True
        return mask

    def release(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> bool:
        """Give up a lookup that no retrieve will follow; False if there is none. Works unhealthy too."""
        if self._disowned:
            return False
        try:
            return self._access.release(self._runs(tokens, salt, variant)[0], request_id)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("release", error, False)  # noqa: FBT003 - the answer itself

    def clear(self) -> list[Cleared]:
        """Drop every chunk of the tiers that are this instance's own; say what happened to each tier."""
        if self._disowned:
            return []
        try:
            return self._access.clear()
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("clear", error, [])

    # -- inside ---------------------------------------------------------------

    def _store(self, tokens: Any, kv: Any, *, salt: str, variant: str, request_id: str, skip_tokens: int) -> int:
        chunk_format = self._known_format()
        adapter = self._adapter(chunk_format.chunk_tokens)
        adapter.check(kv, len(tokens))
        skip_chunks = -(-max(0, skip_tokens) // chunk_format.chunk_tokens)
        run = chunk_format.run(token_array(tokens), salt, variant).behind(skip_chunks)
        deadline = time.monotonic() + self._timeout_s
        reservation = self._access.reserve(run, request_id, deadline=deadline)
        try:
            starts = [(skip_chunks + place) * chunk_format.chunk_tokens for place in reservation.places]
            adapter.gather(kv, starts, reservation.payloads)
        except BaseException:
            self._access.abandon(reservation)
            raise
        kept = self._access.commit(reservation, request_id, deadline=deadline)
        return sum(run.tokens(place, place + 1) for place in reservation.places[:kept])

    def _retrieve(
        self,
        tokens: Any,
        out: Any,
        delivered: _Delivery,
        *,
        salt: str,
        variant: str,
        request_id: str,
        skip_tokens: int,
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        chunk_format = self._known_format()
        step = chunk_format.chunk_tokens
        run = chunk_format.run(token_array(tokens), salt, variant)
        adapter = self._adapter(step)
        adapter.check(out, len(tokens))
        skip_chunks = min(max(0, skip_tokens) // step, len(run.digests))
        with self._access.fetch(run, request_id, skip_chunks=skip_chunks, deadline=deadline) as chunks:
            place = skip_chunks
            try:
                for payload in chunks:
                    adapter.scatter(payload, out, place * step)
                    place += 1
            finally:
                adapter.finish(out)
                chunks.delivered_chunks = place - skip_chunks
                delivered.tokens = min(place * step, len(tokens))

    def _runs(self, tokens: Any, salt: str, variant: str) -> tuple[list[ChunkRun], int]:
        chunk_format = self._known_format()
        return chunk_format.runs(token_array(tokens), salt, variant), chunk_format.chunk_tokens

    def _known_format(self) -> ChunkFormat:
        chunk_format = self._access.format
        if chunk_format is None:
            raise ValueError("no cache server has been reached yet")
        return chunk_format

    def _adapter(self, chunk_tokens: int) -> KVAdapter:
        adapter = self._adapters.get(chunk_tokens)
        if adapter is None:
            adapter = self._adapters[chunk_tokens] = self._make_adapter(chunk_tokens)
        return adapter

    def _degraded(self, operation: str, answer: T) -> T:
        if self._disowned:  # counting takes a lock
            return answer
        self._metrics.degraded_requests.labels(operation).inc()
        self._warn(operation, "the cache is unhealthy, %s is skipped and the engine recomputes", operation)
        return answer

    def _refused(self, operation: str, error: Exception, default: T) -> T:
        reason = type(error).__name__
        self._metrics.request_errors.labels(operation, reason).inc()
        known = isinstance(error, ValueError)  # a sentence of ours: LayoutError, or of token_array
        self._warn(f"{operation} {reason}", "%s refused: %s", operation, error, error=None if known else error)
        return default

    def _warn(self, kind: str, text: str, *arguments: object, error: Exception | None = None) -> None:
        now = time.monotonic()
        with self._warn_lock:
            if now < self._warn_after.get(kind, 0.0):
                return
            self._warn_after[kind] = now + _LEAST_WARNING_GAP_S
        log.warning(f"{text} (at most one such line in 10 s)", *arguments, exc_info=error)  # noqa: G004 - constant text


@dataclass
class _Delivery:
    tokens: int = 0


def _never() -> bool:
    return False


def _no_tokens(tokens: Any) -> Mask:
    try:
        count = len(tokens)
    except TypeError:  # one number, or nothing of the kind: there is no mask to fill
        count = 0
    return np.zeros(count, dtype=np.bool_)
