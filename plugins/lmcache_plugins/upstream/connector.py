"""One of our stores as a remote connector of LMCache."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from lmcache_core import BackendError, WorkerPool
from lmcache_plugins.upstream.chunk_store import ChunkStore, Loads
from lmcache_plugins.upstream.keys import KeyMapper

log = logging.getLogger(__name__)

T = TypeVar("T")

_QUIET = frozenset({"bypassed", "breaker_open"})
"""The guard has said once that the store is left out; a line for each chunk would say no more."""

_LEAST_WARNING_GAP_S = 10.0


class LMCoreConnector(RemoteConnector):  # type: ignore[misc] # LMCache is not where mypy runs
    """Serves LMCache's event loop from worker threads, so that a slow store never holds the loop up.

    A value that is damaged is a miss. A store that hangs costs its callers one deadline, and after a few
    of them nothing: it is left out until it answers again.

    Args:
        open_store: Makes the store for chunks of so many bytes.
        local_cpu_backend: Where LMCache's memory comes from.
        config: LMCache's.
        metadata: LMCache's.
    """

    def __init__(
        self, open_store: Callable[[int], ChunkStore], local_cpu_backend: Any, config: Any, metadata: Any
    ) -> None:
        super().__init__(config, metadata)
        self._local = local_cpu_backend
        self._mapper = KeyMapper(self.meta_shapes, self.meta_dtypes, metadata.chunk_size, self.full_chunk_size_bytes)
        self._store = open_store(self.full_chunk_size_bytes)
        self._readers = WorkerPool("lmcore-read", 2 * self._store.connections)
        self._writers = WorkerPool("lmcore-write", self._store.connections)
        self._closing = WorkerPool("lmcore-close", 1)
        self._warn_after_s = 0.0

    # -- asked on LMCache's event loop ------------------------------------------

    async def exists(self, key: Any) -> bool:
        """Tell whether the store has a chunk."""
        return await self._count([key]) == 1

    async def batched_async_contains(self, lookup_id: str, keys: Sequence[Any], pin: bool = False) -> int:  # noqa: FBT002 - LMCache's signature
        """Count the leading chunks that the store has; one round trip."""
        del lookup_id, pin
        return await self._count(keys)

    async def get(self, key: Any) -> Any:
        """Give a chunk in LMCache's memory; None for a miss."""
        return (await self.batched_get([key]))[0]

    async def batched_get(self, keys: Sequence[Any]) -> list[Any]:
        """Give chunks, None for each miss, all by one deadline."""
        deadline = self._store.deadline()
        loads = self._store.begin(len(keys), deadline) if keys else None
        if loads is None:
            return [None] * len(keys)
        jobs: list[Future[Any]] = []
        try:
            for key in keys:
                jobs.append(self._readers.submit(partial(self._fetch, loads, key)))
                jobs[-1].add_done_callback(lambda _: loads.one_is_over())
            await asyncio.wait([asyncio.wrap_future(job) for job in jobs], timeout=_left_s(deadline))
        except (asyncio.CancelledError, RuntimeError):  # the latter: closed, or no thread to be had
            for job in jobs:
                _abandon(job)
            for _ in keys[len(jobs) :]:
                loads.one_is_over()
            raise
        return [_taken(job) for job in jobs]

    async def batched_get_non_blocking(self, lookup_id: str, keys: Sequence[Any]) -> list[Any]:
        """Give the leading chunks up to the first miss."""
        del lookup_id
        values = await self.batched_get(keys)
        hits = values.index(None) if None in values else len(values)
        for value in values[hits:]:
            if value is not None:
                value.ref_count_down()
        return values[:hits]

    async def put(self, key: Any, memory_obj: Any) -> None:
        """Store a chunk.

        Raises:
            BackendError: It is lost; LMCache counts that.
        """
        deadline = self._store.deadline()
        memory_obj.ref_count_up()  # the worker reads it, also when nobody waits for the worker any more
        try:
            writing = self._writers.submit(lambda: self._keep(key, memory_obj, deadline))
        except RuntimeError:  # closed
            memory_obj.ref_count_down()
            raise
        writing.add_done_callback(lambda _: memory_obj.ref_count_down())
        reason = await self._within(writing, deadline, "timeout")
        if reason and reason not in _QUIET:
            raise BackendError(f"lmcore: a chunk of {memory_obj.get_size()} bytes is lost: {reason}")

    async def ping(self) -> int:
        """Ask the store itself; 0, -1 for no answer in time, -2 for an error."""
        return await self._within(self._readers.submit(self._store.ping), self._store.deadline(), -1)

    async def list(self) -> list[str]:
        """Not served: our stores keep digests of LMCache's keys."""
        raise NotImplementedError("lmcore: a store keeps digests of keys and cannot list the keys")

    async def close(self) -> None:
        """Let go of the store."""
        await asyncio.wrap_future(self._closing.submit(self._store.close))
        for pool in (self._readers, self._writers, self._closing):
            pool.close()

    # -- asked on LMCache's other threads ---------------------------------------

    def exists_sync(self, key: Any) -> bool:
        """Tell whether the store has a chunk."""
        return self.batched_contains([key]) == 1

    def batched_contains(self, keys: Sequence[Any]) -> int:
        """Count the leading chunks that the store has; one round trip."""
        return self._store.present([self._mapper.map(key) for key in keys], self._store.deadline())

    def remove_sync(self, key: Any) -> bool:
        """Remove a chunk; tell whether it was there."""
        return self._store.drop([self._mapper.map(key)]) == 1

    def support_ping(self) -> bool:
        """Every one of our stores answers a ping."""
        return True

    def support_batched_get(self) -> bool:
        """One deadline for all chunks of a request."""
        return True

    def support_batched_contains(self) -> bool:
        """One round trip for all chunks of a request."""
        return True

    # -- on workers ---------------------------------------------------------------

    def _fetch(self, loads: Loads, key: Any) -> Any:
        try:
            chunk = loads.fetch(self._mapper.map(key))
            return None if chunk is None else self._copied(chunk)
        except Exception:  # the border of one worker's job: LMCache is told of a miss
            log.exception("lmcore: a chunk could not be fetched")
            return None

    def _copied(self, chunk: memoryview) -> Any:
        value = self._local.allocate(self.meta_shapes, self.meta_dtypes, self.meta_fmt, busy_loop=False)
        if value is None:
            self._warn_of_memory(len(chunk))
            return None
        try:
            memoryview(value.byte_array).cast("B")[: len(chunk)] = chunk
            return self.reshape_partial_chunk(value, len(chunk))
        except Exception:
            value.ref_count_down()
            raise

    def _warn_of_memory(self, chunk_bytes: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._warn_after_s:
            self._warn_after_s = now_s + _LEAST_WARNING_GAP_S
            log.warning(
                "lmcore: lmcache has no memory left for a chunk of %d bytes, so that it is a miss; "
                "raise max_local_cpu_size (at most one such line in 10 s)",
                chunk_bytes,
            )

    def _keep(self, key: Any, memory_obj: Any, deadline: float) -> str:
        chunk = memoryview(memory_obj.byte_array).cast("B")
        if len(chunk) > self.full_chunk_size_bytes or len(chunk) % self.single_token_size or not len(chunk):
            return f"its length is no whole number of tokens up to {self.full_chunk_size_bytes} bytes"
        if len(self.meta_shapes) > 1 and len(chunk) != self.full_chunk_size_bytes:
            return "of a model with several groups of layers only full chunks can be rebuilt"
        return self._store.keep(self._mapper.map(key), chunk, deadline)

    # -- inside ---------------------------------------------------------------------

    async def _count(self, keys: Sequence[Any]) -> int:
        deadline = self._store.deadline()
        mapped = [self._mapper.map(key) for key in keys]
        return await self._within(self._readers.submit(lambda: self._store.present(mapped, deadline)), deadline, 0)

    async def _within(self, work: Future[T], deadline: float, late: T) -> T:
        """Wait for a worker's job until the deadline; a chunk that comes later is given back."""
        try:
            await asyncio.wait([asyncio.wrap_future(work)], timeout=_left_s(deadline))
        except asyncio.CancelledError:
            _abandon(work)
            raise
        if work.done():
            return work.result()
        _abandon(work)
        return late


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _taken(load: Future[Any]) -> Any:
    if load.done():
        return load.result()
    _abandon(load)
    return None


def _abandon(work: Future[Any]) -> None:
    work.cancel()
    work.add_done_callback(_give_back)


def _give_back(work: Future[Any]) -> None:
    if work.cancelled() or work.exception() is not None:
        return
    value = work.result()
    if hasattr(value, "ref_count_down"):
        value.ref_count_down()
