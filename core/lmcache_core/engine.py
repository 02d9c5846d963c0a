"""Store, lookup, retrieve: what an inference engine calls, and the gate before them."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lmcache_core.contracts.key import KeyNamespace, hash_salt
from lmcache_core.events.journal import Journal
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.cleared import Cleared
from lmcache_core.storage.manager import ChunkRun, StorageManager
from lmcache_core.tokens.hashing import chunk_digests, token_array

log = logging.getLogger(__name__)

T = TypeVar("T")
Mask: TypeAlias = "npt.NDArray[np.bool_]"

_LEAST_WARNING_GAP_S = 10.0

_NAMESPACES_KEPT = 10_000
"""Tenants whose namespace is remembered; one more is derived anew at each call."""


class KVAdapter(Protocol):
    """Moves KV between an engine's tensors and block bytes; `adapters` has them."""

    def check(self, kv: Any, tokens: int) -> None:
        """Refuse a tensor that is not this layout's KV of so many tokens.

        Raises:
            LayoutError: Says what was expected and what came.
        """

    def gather(self, kv: Any, starts: Sequence[int], outs: Sequence[memoryview]) -> None:
        """Copy the chunks that begin at these tokens into payloads; complete when it returns."""

    def scatter(self, payload: memoryview, kv: Any, start: int) -> None:
        """Copy one chunk's payload into the tensor from a token on; complete when it returns."""


class CacheEngine:
    """The cache as an inference engine sees it. Safe from several threads.

    No method raises an `Exception`: what goes wrong is a miss or a no-op with a sentence in the log
    and a count in ``lmcache:request_errors`` or ``lmcache:degraded_requests``.

    Args:
        storage: All tiers.
        adapter: For the tensors of the engine.
        namespace: Makes the key namespace of a tenant from its salt's hash.
        is_healthy: The gate; must cost no more than a method call.
        journal: Where events go.
        metrics: Families to count in.
        timeout_s: Longest a lookup or retrieve may take, ``blocking_timeout_secs``.
    """

    def __init__(
        self,
        *,
        storage: StorageManager,
        adapter: KVAdapter,
        namespace: Callable[[str], KeyNamespace],
        is_healthy: Callable[[], bool],
        journal: Journal,
        metrics: CacheMetrics,
        timeout_s: float,
    ) -> None:
        self._storage = storage
        self._adapter = adapter
        self._make_namespace = namespace
        self._namespaces = {"": namespace("")}
        self.is_healthy = is_healthy
        self._journal = journal
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._chunk_tokens = self._namespaces[""].chunk_tokens
        self._warn_lock = threading.Lock()
        self._warn_after: dict[str, float] = {}

    # -- the face -------------------------------------------------------------

    def store(self, tokens: Any, kv: Any, *, salt: str = "", request_id: str = "") -> int:
        """Keep the KV of all full chunks of a sequence that are not kept yet.

        Args:
            tokens: Whole numbers, ``[n]``.
            kv: ``[2, layers, n, heads * head_size]``, or ``[1, ...]`` for MLA.
            salt: The tenant's; chunks of different salts never meet.
            request_id: For events.

        Returns:
            Tokens newly kept; 0 when unhealthy or refused.
        """
        if not self.is_healthy():
            return self._degraded("store", 0)
        try:
            return self._store(tokens, kv, salt, request_id)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("store", error, 0)

    def lookup(self, tokens: Any, *, salt: str = "", request_id: str = "") -> int:
        """Count the leading tokens that a retrieve will deliver, and hold them for it.

        A lookup that no `retrieve` or `release` of the same tokens follows is let go after
        ``pin_timeout_sec``.

        Returns:
            Tokens, a multiple of the chunk size; 0 when unhealthy.
        """
        if not self.is_healthy():
            return self._degraded("lookup", 0)
        try:
            return self._lookup(tokens, salt, request_id)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("lookup", error, 0)

    def retrieve(self, tokens: Any, out: Any, *, salt: str = "", request_id: str = "") -> Mask:
        """Fill the KV of the leading tokens that are kept.

        Args:
            tokens: Whole numbers, ``[n]``.
            out: Like `store`'s ``kv``; written where the mask is True and, after an error inside a
                copy, possibly in the one chunk behind.
            salt: The tenant's.
            request_id: The lookup's, if that had one.

        Returns:
            ``bool [n]``: True for a prefix, False behind it. All False when unhealthy.
        """
        if not self.is_healthy():
            return self._degraded("retrieve", _no_tokens(tokens))
        delivered: list[int] = []
        try:
            self._retrieve(tokens, out, salt, request_id, delivered)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            self._refused("retrieve", error, None)
        mask = _no_tokens(tokens)
        mask[: len(delivered) * self._chunk_tokens] = True
        return mask

    def release(self, tokens: Any, *, salt: str = "", request_id: str = "") -> bool:
        """Give up a lookup that no retrieve will follow; False if there is none. Works unhealthy too."""
        try:
            run = self._run(tokens, salt)
            return self._storage.release(_request(run, request_id))
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("release", error, False)  # noqa: FBT003 - the answer itself

    def clear(self) -> list[Cleared]:
        """Drop every chunk of the tiers that are this instance's own; say what happened to each tier."""
        try:
            return self._storage.clear()
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused("clear", error, [])

    # -- inside ---------------------------------------------------------------

    def _store(self, tokens: Any, kv: Any, salt: str, request_id: str) -> int:
        run = self._run(tokens, salt)
        self._adapter.check(kv, len(tokens))
        places, blocks = self._storage.make_room(run)
        kept_tokens = len(places) * self._chunk_tokens
        try:
            payloads = [self._storage.codec.payload(block.view) for block in blocks]
            self._adapter.gather(kv, [place * self._chunk_tokens for place in places], payloads)
        except BaseException:
            self._storage.local.arena.release(blocks)
            raise
        self._storage.keep(run, places, blocks)
        self._metrics.stored_tokens.inc(kept_tokens)
        self._journal.stored(run.namespace, len(places), request_id)
        return kept_tokens

    def _lookup(self, tokens: Any, salt: str, request_id: str) -> int:
        deadline = time.monotonic() + self._timeout_s
        run = self._run(tokens, salt)
        found = self._storage.lookup(run, _request(run, request_id), deadline=deadline)
        hit_tokens = found.chunks * self._chunk_tokens
        self._metrics.requested_tokens.inc(len(tokens))
        self._metrics.hit_tokens.inc(hit_tokens)
        self._journal.looked_up(
            run.namespace,
            run.digests,
            requested_tokens=len(tokens),
            l1_chunks=found.l1_chunks,
            found_chunks=found.chunks,
            request_id=request_id,
        )
        return hit_tokens

    def _retrieve(self, tokens: Any, out: Any, salt: str, request_id: str, delivered: list[int]) -> None:
        deadline = time.monotonic() + self._timeout_s
        run = self._run(tokens, salt)
        self._adapter.check(out, len(tokens))
        payload = self._storage.codec.payload
        with closing(self._storage.fetch(run, _request(run, request_id), deadline=deadline)) as blocks:
            for place, block in enumerate(blocks):
                self._adapter.scatter(payload(block.view), out, place * self._chunk_tokens)
                delivered.append(place)
        self._metrics.retrieved_tokens.inc(len(delivered) * self._chunk_tokens)
        self._journal.retrieved(run.namespace, len(delivered), request_id)

    def _run(self, tokens: Any, salt: str) -> ChunkRun:
        namespace = self._namespaces.get(hash_salt(salt))
        if namespace is None:
            namespace = self._make_namespace(hash_salt(salt))
            if len(self._namespaces) < _NAMESPACES_KEPT:
                self._namespaces[namespace.salt_hash] = namespace
        return ChunkRun(namespace, chunk_digests(token_array(tokens), self._chunk_tokens, namespace.seed))

    def _degraded(self, operation: str, answer: T) -> T:
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


def _request(run: ChunkRun, request_id: str) -> bytes:
    """Identity that ties a retrieve to its lookup: the caller's, or the chain's end."""
    if request_id:
        return hashlib.sha256(run.namespace.seed + request_id.encode()).digest()
    return run.digests[-1] if run.digests else run.namespace.seed


def _no_tokens(tokens: Any) -> Mask:
    return np.zeros(len(tokens) if hasattr(tokens, "__len__") else 0, dtype=np.bool_)
