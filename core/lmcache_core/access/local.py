"""Chunks of this process's own tiers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextlib import closing, contextmanager
from functools import partial

from lmcache_core.access.chunk_access import Reservation
from lmcache_core.access.format import ChunkFormat
from lmcache_core.contracts.cache import Cleared
from lmcache_core.events.journal import Journal, Part
from lmcache_core.memory.arena import Block
from lmcache_core.memory.lease import Lease
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.manager import StorageManager
from lmcache_core.storage.run import ChunkRun, Found, Request
from lmcache_core.workers import WorkerPool

PAST = 0.0
"""A deadline for who must not wait for a further tier, also when a chunk has just been evicted."""


class LocalAccess:
    """The `ChunkAccess` that goes straight to the tiers; counts what it does and tells the journal. Any thread.

    Args:
        storage: All tiers.
        chunk_format: How the engine's chunks are cut and named.
        is_healthy: Whether the cache is to be used; must cost no more than a method call.
        journal: Where events go.
        metrics: Families to count in.
        loaders: Threads that prefetch.
        engine_id: Names the engine in events.
        counts_tokens: Whether tokens and lookups are counted here; False for a rank beside one that counts them.
    """

    def __init__(
        self,
        storage: StorageManager,
        chunk_format: ChunkFormat,
        *,
        is_healthy: Callable[[], bool],
        journal: Journal,
        metrics: CacheMetrics,
        loaders: WorkerPool,
        engine_id: str = "",
        counts_tokens: bool = True,
    ) -> None:
        self._storage = storage
        self._format = chunk_format
        self.is_healthy = is_healthy
        self._journal = journal
        self._metrics = metrics
        self._loaders = loaders
        self._engine_id = engine_id
        self._counted = 1 if counts_tokens else 0  # of a request; a rank's own bytes always count

    @property
    def format(self) -> ChunkFormat:
        """How chunks are cut and named."""
        return self._format

    # -- lookups ----------------------------------------------------------------

    def lookup(self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float) -> Found:
        """Count the leading chunks that every rank can fetch, and hold them for the fetch."""
        found = self._of_each(runs, request_id, partial(self._storage.lookup, deadline=deadline))
        return self._looked_up(runs, found, request_id, requested_tokens)

    def lookup_resident(self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int) -> Found | None:
        """Look up if no further tier need be asked; None, and nothing held or counted, if one must."""
        found: list[Found] = []
        for run in runs:
            one = self._storage.lookup_resident(run, run.request(request_id))
            if one is None:
                self._forsake(runs, request_id, found)
                return None
            found.append(one)
        return self._looked_up(runs, found, request_id, requested_tokens)

    def prefetch(
        self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float
    ) -> PrefetchFuture:
        """Begin a lookup that also loads what further tiers have; at once where they need not be asked."""

        def load(until_s: float) -> Found:
            found = self._of_each(runs, request_id, partial(self._storage.prefetch, deadline=until_s))
            return self._looked_up(runs, found, request_id, requested_tokens)

        if self.resident(runs, None):
            future: Future[Found] = Future()
            future.set_result(load(PAST))
        else:
            future = self._loaders.submit(partial(load, deadline))
        return PrefetchFuture(future, lambda found: self.forsake(runs, request_id, found))

    def resident(self, runs: Sequence[ChunkRun], request_id: str | None) -> bool:
        """Whether a fetch for this request, or a lookup where that is None, would ask no further tier."""
        return all(
            self._storage.is_resident(run, None if request_id is None else run.request(request_id)) for run in runs
        )

    def release(self, runs: Sequence[ChunkRun], request_id: str) -> bool:
        """Give up a lookup's promise; False if there is none."""
        released = [self._storage.release(run.request(request_id)) for run in runs]
        return any(released)

    def forsake(self, runs: Sequence[ChunkRun], request_id: str, found: Found) -> None:
        """Give up just what this lookup promised, as far as nobody has come for it."""
        self._forsake(runs, request_id, found.parts or (found,))

    def _forsake(self, runs: Sequence[ChunkRun], request_id: str, found: Sequence[Found]) -> None:
        for run, part in zip(runs, found, strict=False):
            self._storage.forsake(run.request(request_id), part)

    def _of_each(
        self, runs: Sequence[ChunkRun], request_id: str, look: Callable[[ChunkRun, Request], Found]
    ) -> list[Found]:
        found: list[Found] = []
        try:
            for run in runs:
                found.append(look(run, run.request(request_id)))  # noqa: PERF401 - those before a failure are needed
        except BaseException:
            self._forsake(runs, request_id, found)
            raise
        return found

    def _looked_up(self, runs: Sequence[ChunkRun], found: list[Found], request_id: str, requested: int) -> Found:
        chunks = min(one.chunks for one in found)
        whole = Found(min(one.l1_chunks for one in found), chunks, parts=tuple(found))
        if not self._counted:
            return whole
        run = runs[0]
        self._metrics.requested_tokens.inc(requested)
        hit_tokens = run.tokens(0, whole.chunks)
        self._metrics.hit_tokens.inc(hit_tokens)
        self._storage.local.tenants.looked_up(
            run.namespace.salt_hash,
            requested_tokens=requested,
            hit_tokens=hit_tokens,
        )
        self._journal.looked_up(
            run.namespace,
            run.digests,
            requested_tokens=requested,
            l1=Part(whole.l1_chunks, run.tokens(0, whole.l1_chunks)),
            found=Part(whole.chunks, hit_tokens),
            request_id=request_id,
            shape=run.codec.shape,
        )
        return whole

    # -- filling ------------------------------------------------------------------

    def reserve(self, run: ChunkRun, request_id: str, *, deadline: float) -> Reservation:
        """Lend blocks for the chunks that are neither kept nor being filled by another."""
        del deadline  # never waits
        places, blocks = self._storage.make_room(run, request_id)
        return Reservation(run, places, [run.codec.payload(block.view) for block in blocks], blocks)

    def commit(self, reservation: Reservation, request_id: str, *, deadline: float) -> int:
        """Keep filled blocks; give how many chunks were kept."""
        del deadline  # never waits
        run, chunks = reservation.run, len(reservation.places)
        self._storage.keep(run, reservation.places, reservation.handle)
        tokens = sum(run.tokens(place, place + 1) for place in reservation.places)
        self._metrics.stored_tokens.inc(tokens * self._counted)
        self._metrics.stored_bytes.inc(chunks * run.codec.payload_bytes)
        self._journal.stored(run.namespace, chunks, request_id, self._engine_id, tokens=tokens)
        return chunks

    def abandon(self, reservation: Reservation) -> None:
        """Take back blocks that will not be filled."""
        self._storage.abandon(reservation.run, reservation.places, reservation.handle)

    # -- reading -------------------------------------------------------------------

    @contextmanager
    def fetch(
        self, run: ChunkRun, request_id: str, *, skip_chunks: int, deadline: float
    ) -> Generator[LocalChunks, None, None]:
        """Give the payloads of the leading chunks behind the skipped ones; valid until the context ends."""
        blocks = self._storage.fetch(run, run.request(request_id), deadline=deadline, skip_chunks=skip_chunks)
        with closing(blocks):
            chunks = LocalChunks(blocks, run)
            try:
                yield chunks
            finally:
                self.delivered(run, request_id, chunks.delivered_chunks, skip_chunks=skip_chunks)

    def lend(self, run: ChunkRun, request_id: str, *, skip_chunks: int, deadline: float) -> Lease:
        """Give a lease on the blocks of the leading chunks behind the skipped ones, for another process to read."""
        return self._storage.lend(run, run.request(request_id), deadline=deadline, skip_chunks=skip_chunks)

    def delivered(self, run: ChunkRun, request_id: str, chunks: int, *, skip_chunks: int) -> None:
        """Count chunks, behind the skipped ones, that reached an engine, and tell the journal."""
        tokens = run.tokens(skip_chunks, skip_chunks + chunks)
        self._metrics.retrieved_tokens.inc(tokens * self._counted)
        self._metrics.retrieved_bytes.inc(chunks * run.codec.payload_bytes)
        self._journal.retrieved(run.namespace, chunks, request_id, self._engine_id, tokens=tokens)

    def clear(self) -> list[Cleared]:
        """Drop every chunk of the tiers that are this instance's own."""
        return self._storage.clear()


class LocalChunks:
    """Payloads of a fetch, as they arrive.

    Attributes:
        delivered_chunks: Used so far, set by the caller.
    """

    def __init__(self, blocks: Iterator[Block], run: ChunkRun) -> None:
        self._blocks = blocks
        self._payload = run.codec.payload
        self.delivered_chunks = 0

    def __iter__(self) -> Iterator[memoryview]:
        """Iterate over payload views."""
        for block in self._blocks:
            yield self._payload(block.view)


class PrefetchFuture:
    """The `PendingFound` of a prefetch in this process."""

    def __init__(self, future: Future[Found], forsake: Callable[[Found], None]) -> None:
        self._future = future
        self._forsake = forsake

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return self._future.done()

    def result(self, timeout_s: float) -> Found | None:
        """Wait, at most so long; None when late. Raises what the lookup raised."""
        try:
            return self._future.result(timeout_s)
        except LateError:
            return None

    def cancel(self) -> None:
        """Give up the lookup and what it has promised or will promise."""
        if not self._future.cancel():
            self._future.add_done_callback(self._drop)

    def add_done_callback(self, call: Callable[[PrefetchFuture], None]) -> None:
        """Call when it is over, on the thread that ends it; at once if it is over already."""
        self._future.add_done_callback(lambda _: call(self))

    def _drop(self, future: Future[Found]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._forsake(future.result())
