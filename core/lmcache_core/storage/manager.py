"""All tiers as one store: tier 0 first, then each guarded store in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from lmcache_core.contracts.cache import Cleared
from lmcache_core.contracts.control import LocalUsage, TenantUsage, WriteBehindUsage
from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.report import BackendReport
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import Block
from lmcache_core.memory.lease import Lease, Promise, PromiseTable
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage import local_cpu
from lmcache_core.storage.bypass import Hold
from lmcache_core.storage.describe import describe_tier
from lmcache_core.storage.fetch import Fetcher, Plan, Promised, TierRun
from lmcache_core.storage.filling import FillingChunks
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.lapsed import LapsedPromises
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.run import ChunkRun, Found, Request
from lmcache_core.storage.writeback import WriteBehind


class StorageManager:
    """Looks up, fetches and keeps chunks; is the `StorageControl` that fallback policies get.

    Args:
        local: Tier 0.
        tiers: The stores behind it, in order.
        metrics: Families to count in.
        journal: Where events go.
        write_behind_chunks: Bound of each tier's write-behind queue.
        lease_ttl_s: Seconds a lookup's promise is kept.
        clock: Monotonic seconds, for the leases.
    """

    def __init__(
        self,
        *,
        local: LocalCPUBackend,
        tiers: Sequence[GuardedTier],
        metrics: CacheMetrics,
        journal: Journal,
        write_behind_chunks: int,
        lease_ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.local = local
        self.tiers = tuple(tiers)
        self._arena = local.arena
        self._journal = journal
        self._metrics = metrics
        self._fetcher = Fetcher(self._arena, metrics, journal)
        self._promises: PromiseTable[Promised] = PromiseTable(lease_ttl_s, clock)
        self._closed = False
        self._lapsed = LapsedPromises()
        self._filling = FillingChunks(local.missing)
        self._writers = [
            WriteBehind(tier, limit_chunks=write_behind_chunks, metrics=metrics, journal=journal) for tier in self.tiers
        ]

    @property
    def promises(self) -> int:
        """Lookups whose retrieve has not come yet."""
        return len(self._promises)

    # -- data path ------------------------------------------------------------

    def lookup(self, run: ChunkRun, request: Request, *, deadline: float) -> Found:
        """Count the leading chunks that can be fetched, and lease those of tier 0 for the fetch."""
        lease = Lease(self._arena, self.local.lease_run(run.digests))
        try:
            plan = self._plan(run, len(lease.blocks), deadline)
        except BaseException:
            lease.release()
            raise
        return self._promise(run, request, lease, plan, len(lease.blocks))

    def lookup_resident(self, run: ChunkRun, request: Request) -> Found | None:
        """Look up as `lookup` does if no further tier need be asked; None, and nothing held, if one must."""
        blocks = self.local.lease_run(run.digests)
        if len(blocks) < len(run.digests) and not all(tier.is_open() for tier in self.tiers):
            self._arena.release(blocks)
            return None
        return self._promise(run, request, Lease(self._arena, blocks), (), len(blocks))

    def prefetch(self, run: ChunkRun, request: Request, *, deadline: float) -> Found:
        """Look up and load what the further tiers have; the promise then holds every chunk in memory."""
        held = self.local.lease_run(run.digests)
        local_chunks = len(held)
        try:
            plan = self._plan(run, local_chunks, deadline)
            with closing(self._fetch_rest(run, request, plan, local_chunks, deadline)) as rest:
                for blocks in rest:
                    held += blocks
            if plan:
                self.local.commit(run.namespace, run.digests[: len(held)], held)
        except BaseException:
            self._arena.release(held)
            raise
        return self._promise(run, request, Lease(self._arena, held), (), local_chunks)

    def _promise(self, run: ChunkRun, request: Request, lease: Lease, plan: Plan, l1_chunks: int) -> Found:
        """Keep what a lookup found for its retrieve, which is then late for none before it."""
        self._lapsed.forget(request)
        if not lease.blocks and not plan:
            return Found(0, 0)
        promised = Promised.of(run, plan, len(lease.blocks))
        return Found(l1_chunks, promised.chunks, self._promises.add(request, lease, promised))

    def is_resident(self, run: ChunkRun, request: Request | None) -> bool:
        """Whether a fetch for this request, or a lookup where that is None, would ask no further tier."""
        promised = None if request is None else self._promises.plan_of(request)
        if promised is not None and promised.serves(run):
            return not promised.plan
        return self.local.has_run(run.digests) or all(tier.is_open() for tier in self.tiers)

    def fetch(
        self, run: ChunkRun, request: Request, *, deadline: float, skip_chunks: int = 0
    ) -> Generator[Block, None, None]:
        """Give the blocks of the leading chunks in order, without the first `skip_chunks`.

        Each is valid until the iterator is closed. What a lookup of the same request promised is used
        first, so that it is kept.
        """
        held: list[Block] = []
        try:
            with closing(self._gather(run, request, held, skip_chunks, deadline)) as arriving:
                yield from arriving
        finally:
            self._arena.release(held)

    def lend(self, run: ChunkRun, request: Request, *, deadline: float, skip_chunks: int = 0) -> Lease:
        """Fetch to the end, and hand the blocks over. A deadline that is past asks no further tier."""
        held: list[Block] = []
        try:
            for _ in self._gather(run, request, held, skip_chunks, deadline):
                pass
        except BaseException:
            self._arena.release(held)
            raise
        return Lease(self._arena, held)

    def _gather(
        self, run: ChunkRun, request: Request, held: list[Block], skip_chunks: int, deadline: float
    ) -> Generator[Block, None, None]:
        """Give blocks as they arrive; whatever `held` has at the end, however it comes, is the caller's to release."""
        promise = self._take(run, request)
        if promise is not None:
            held += promise.lease.take()
            self._trim(held, skip_chunks, len(run.digests))
        if promise is None or not promise.plan.plan:
            held += self.local.lease_run(run.digests[skip_chunks + len(held) :])
        yield from tuple(held)
        place = skip_chunks + len(held)
        lapsed = self._lapsed.take(run, request)
        expected = self._tell_lost(run, request, lapsed, place) if promise is None and lapsed is not None else 0
        plan = promise.plan.plan if promise is not None else self._plan(run, place, deadline)
        with closing(self._fetch_rest(run, request, plan, place, deadline)) as rest:
            for blocks in rest:
                held += blocks
                yield from blocks
        place = skip_chunks + len(held)
        if plan:
            self.local.commit(run.namespace, run.digests[skip_chunks:place], held)
            expected = max(expected, plan[-1].stop)
        if expected > place:
            self._metrics.short_tokens.inc(run.tokens(place, min(expected, len(run.digests))))

    def _tell_lost(self, run: ChunkRun, request: Request, lapsed: Promised, place: int) -> int:
        """Tell what tier 0 has lost since a lookup whose lease has expired; give the chunks that it had found."""
        lost = run.keys(place, lapsed.resident)
        if lost:
            self._journal.l1_read_failed(lost, request.name)
        return lapsed.chunks

    def _take(self, run: ChunkRun, request: Request) -> Promise[Promised] | None:
        """Take the request's promise; one of other tokens, under a name used twice, is given up."""
        promise = self._promises.take(request)
        if promise is not None and not promise.plan.serves(run):
            promise.lease.release()
            return None
        return promise

    def _trim(self, held: list[Block], start: int, stop: int) -> None:
        """Let go of promised blocks that this fetch does not want."""
        unwanted = held[:start] + held[max(start, stop) :]
        held[:] = held[start:stop]
        self._arena.release(unwanted)

    def _fetch_rest(
        self, run: ChunkRun, request: Request, plan: Plan, start: int, deadline: float
    ) -> Generator[Sequence[Block], None, None]:
        wanted = [
            (part, keys)
            for part in plan
            if not part.tier.bypass.reads and (keys := run.keys(max(part.start, start), part.stop))
        ]
        if wanted and wanted[0][0].start <= start and time.monotonic() < deadline:
            chunks = sum(len(keys) for _, keys in wanted)
            blocks = self.local.reserve(chunks, run.codec.frame_bytes, tenant=run.namespace.salt_hash)
            yield from self._fetcher.fetch(wanted, run.codec, blocks, deadline=deadline, request_id=request.name)

    def _plan(self, run: ChunkRun, start: int, deadline: float) -> Plan:
        """Ask the tiers, one round trip each, for the chunks from `start` on."""
        plan: list[TierRun] = []
        for tier in self.tiers:
            if start >= len(run.digests) or time.monotonic() >= deadline:  # who has no time asks nobody
                break
            if tier.is_open():
                continue
            present = tier.count_present(run.keys(start, len(run.digests)), deadline=deadline)
            if present:
                plan.append(TierRun(tier, start, start + present))
                start += present
        return tuple(plan)

    def release(self, request: Request) -> bool:
        """Give up a lookup's promise; False if there is none."""
        promise = self._promises.take(request)
        self._lapsed.forget(request)
        if promise is not None:
            promise.lease.release()
        return promise is not None

    def forsake(self, request: Request, found: Found) -> bool:
        """Give up just what this lookup promised, if nobody has come for it; False if somebody has."""
        return found.promise is not None and self._promises.discard(request, found.promise)

    def make_room(self, run: ChunkRun, request_id: str = "") -> tuple[list[int], list[Block]]:
        """Lend blocks for the chunks that tier 0 neither has nor is being given by another.

        Does not evict the request's own head. Each call is followed by one of `keep` or `abandon`.

        Returns:
            Places of chunks, and a block for each with one reference of the caller's; fewer than are
            missing where everything else is leased.
        """
        head = self.local.lease_run(run.digests)
        places: list[int] = []
        blocks: list[Block] = []
        try:
            places = self._filling.claim(run.digests)
            blocks = self.local.reserve(len(places), run.codec.frame_bytes, tenant=run.namespace.salt_hash)
        finally:
            self._arena.release(head)
            refused = [run.digests[place] for place in places[len(blocks) :]]
            self._filling.give_up(refused)
        if refused:
            keys = [ChunkKey(run.namespace, digest) for digest in refused]
            self._journal.l1_allocation_failed("l1_store", keys, request_id)
        return places[: len(blocks)], blocks

    def keep(self, run: ChunkRun, places: Sequence[int], blocks: Sequence[Block]) -> None:
        """Make filled blocks findable in tier 0 and queue them for the tiers behind it.

        Args:
            run: The request's chunks.
            places: Which of them the blocks hold.
            blocks: With one reference each, handed over.
        """
        digests = [run.digests[place] for place in places]
        try:
            self.local.commit(run.namespace, digests, blocks)
            for writer in self._writers:
                for digest, block in zip(digests, blocks, strict=True):
                    self._arena.retain((block,))
                    writer.offer(ChunkKey(run.namespace, digest), run.codec, block, Lease(self._arena, (block,)))
        finally:
            self.abandon(run, places, blocks)

    def abandon(self, run: ChunkRun, places: Sequence[int], blocks: Sequence[Block]) -> None:
        """Take lent blocks back; what they hold is not made findable."""
        self._filling.give_up(run.digests[place] for place in places)
        self._arena.release(blocks)

    @property
    def claims(self) -> int:
        """Chunks that somebody is filling now."""
        return len(self._filling)

    # -- housekeeping ---------------------------------------------------------

    def sweep(self) -> int:
        """Release the leases that nobody came for; give how many."""
        expired = self._lapsed.sweep(self._promises)
        self._metrics.expired_leases.inc(expired)
        return expired

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Wait for the write-behind of every tier; False when it takes too long."""
        deadline = time.monotonic() + timeout_s
        drained = [writer.flush(max(0.0, deadline - time.monotonic())) for writer in self._writers]
        return all(drained)

    def clear(self) -> list[Cleared]:
        """Clear what is this instance's own, and say of each tier what happened."""
        report = [self.local.clear()]
        report.extend(tier.clear() for tier in self.tiers)
        return report

    def close(self, drain_s: float) -> None:
        """Drain the write-behind queues, at most so long in all, and let go of every store; once."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + drain_s
        for writer in self._writers:
            writer.stop(max(0.0, deadline - time.monotonic()))
        for tier in self.tiers:
            tier.close()
        self._promises.drop_all()

    # -- contracts.control.StorageControl -------------------------------------

    def backend_names(self) -> list[str]:
        """Names of all tiers, tier 0 first."""
        return [local_cpu.NAME, *(tier.name for tier in self.tiers)]

    def set_backend_bypass(
        self, name: str, bypassed: bool, *, owner: str, reason: str = "", reads: bool = True, writes: bool = True
    ) -> None:
        """Hold a backend out of live traffic, or end this owner's hold; see `StorageControl`."""
        bypass = self.tiers[self._place_of(name)].bypass
        if bypassed:
            bypass.hold(owner, Hold(reason, reads=reads, writes=writes))
        else:
            bypass.release(owner)

    def refuse_new_writes(self, name: str, *, owner: str, reason: str) -> None:
        """Queue no new chunk for a backend while this owner holds it; write those that wait. Raises KeyError."""
        hold = Hold(reason, reads=False, writes=False, draining=True)
        self.tiers[self._place_of(name)].bypass.hold(owner, hold)

    def flush_backend(self, name: str, timeout_s: float) -> bool:
        """Wait for the write-behind of one tier; False when it takes too long. Raises KeyError."""
        return self._writers[self._place_of(name)].flush(timeout_s)

    def _place_of(self, name: str) -> int:
        names = [tier.name for tier in self.tiers]
        if name not in names:
            raise KeyError(f"no backend {name!r} can be bypassed; known: {', '.join(names) or 'none'}")
        return names.index(name)

    def bypassed(self) -> dict[str, tuple[str, ...]]:
        """Backends left out, with the owners that hold them."""
        return {tier.name: tuple(sorted(holds)) for tier in self.tiers if (holds := tier.bypass.holds())}

    def local_usage(self) -> LocalUsage:
        """Tell how tier 0 fares."""
        used_bytes, free_bytes = self._arena.balance()
        return LocalUsage(
            capacity_bytes=self._arena.capacity_bytes,
            used_bytes=used_bytes,
            free_bytes=free_bytes,
            chunks=self.local.chunks,
            leases=self.promises,
            overdue_s=self._promises.overdue_s(),
            lent_blocks=self.local.lent_blocks,
            refused_blocks=self.local.refused_blocks,
        )

    def tenants(self) -> tuple[TenantUsage, ...]:
        """Tell how each tenant's label fares in tier 0."""
        return self.local.tenant_usage()

    def write_behind(self) -> list[WriteBehindUsage]:
        """Tell how each tier's write-behind queue fares."""
        return [writer.usage() for writer in self._writers]

    def holds(self, name: str) -> dict[str, Hold]:
        """Who holds a backend out, by owner."""
        return next((tier.bypass.holds() for tier in self.tiers if tier.name == name), {})

    def serving(self) -> list[str]:
        """Tiers that reads may be answered from now."""
        local = [local_cpu.NAME] if self.local.use_hot else []
        return local + [tier.name for tier in self.tiers if not tier.bypass.reads]

    def describe(self) -> tuple[BackendReport, ...]:
        """Describe the tiers behind tier 0, in order; asks none of them."""
        return tuple(
            describe_tier(tier, writer.waiting_chunks) for tier, writer in zip(self.tiers, self._writers, strict=True)
        )

    def hold_hot_cache(self, *, owner: str) -> None:
        """Make tier 0 keep chunks while this owner holds it."""
        self.local.hold(owner)

    def release_hot_cache(self, *, owner: str) -> int:
        """End the hold; give the chunks cleared."""
        return self.local.release_hold(owner).chunks
