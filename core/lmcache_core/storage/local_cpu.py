"""Tier 0: blocks of the arena, found by chunk digest."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from lmcache_core.contracts.cache import Cleared
from lmcache_core.contracts.control import TenantUsage
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import Arena, Block, whole_pages
from lmcache_core.memory.eviction import LRUIndex
from lmcache_core.memory.owner import Owner
from lmcache_core.memory.window import coldest_window
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.departures import Departures
from lmcache_core.storage.tenants import TenantOwner, Tenants

NAME = "LocalCPUBackend"

_FIRST_LOOK = 4
"""How many times the room that is needed is looked at first, and then each time again."""


class LocalCPUBackend:
    """Keeps chunks in the arena, and lends blocks for staging even while it keeps none.

    Attributes:
        lent_blocks: Blocks given out by `reserve` since start.
        refused_blocks: Blocks it was asked for and did not have.

    `use_hot` says whether a committed chunk stays to be found. It is on while the operator's setting
    is on or somebody holds it on; whoever lets go undoes his own hold only.

    Args:
        arena: Where blocks come from.
        use_hot: The operator's setting, ``local_cpu``.
        metrics: Families to count in.
        journal: Where events go.
        tenants: Whose blocks there may be, and how many; left out, without any bound.
    """

    name = NAME

    def __init__(
        self,
        arena: Arena,
        *,
        use_hot: bool,
        metrics: CacheMetrics,
        journal: Journal,
        tenants: Tenants | None = None,
    ) -> None:
        self.arena = arena
        self.tenants = tenants or Tenants()
        self._metrics = metrics
        self._evicted = metrics.evicted_chunks.labels(NAME)
        self._lock = threading.Lock()
        self._index = LRUIndex()
        self._departures = Departures(journal)
        self._operator_hot = use_hot
        self._holders: set[str] = set()
        self._is_over = False
        self.lent_blocks = 0
        self.refused_blocks = 0
        metrics.local_cache_usage.set_function(lambda: arena.used_bytes)
        metrics.watch_tenants(self.tenant_usage)

    @property
    def use_hot(self) -> bool:
        """Whether committed chunks stay to be found."""
        return self._operator_hot or bool(self._holders)

    @property
    def chunks(self) -> int:
        """Chunks that can be found."""
        return len(self._index)

    def reserve(self, count: int, frame_bytes: int, *, tenant: str = "") -> list[Block]:
        """Lend up to so many blocks, each with one reference of the caller's, evicting as needed.

        A tenant that would be above its quota evicts its own chunks; one below it, what was used least lately.

        Args:
            count: Blocks wanted.
            frame_bytes: Length of each.
            tenant: Salt hash on whose behalf they are lent, and in whose share they count until they are freed.

        Returns:
            Fewer than asked for mean that everything else the tenant may have is leased; that is counted.
        """
        blocks: list[Block] = []
        while len(blocks) < count:
            with self._lock:  # between two steps others come in: room for a large block can take a while
                more = self._reserve_some(tenant, count - len(blocks), frame_bytes)
            self._departures.tell()
            if not more:
                break
            blocks += more
        if len(blocks) < count:
            self._metrics.allocation_failures.inc()
        return blocks

    def _reserve_some(self, tenant: str, count: int, frame_bytes: int) -> list[Block]:
        """Take what is free, or make room once; nothing means that no more is to be had."""
        if self._is_over:
            return []
        owner, size_bytes = self.tenants.of(tenant), whole_pages(frame_bytes)
        allowed = self._allowed(owner, count, size_bytes)
        blocks = self._allocate(owner, allowed, frame_bytes)
        if allowed and not blocks and self._make_room(owner, allowed, size_bytes):
            blocks = self._allocate(owner, allowed, frame_bytes)
        self.lent_blocks += len(blocks)
        if not blocks:
            self.refused_blocks += count
            owner.tally.refused_blocks += count
        return blocks

    def _allocate(self, owner: TenantOwner, count: int, frame_bytes: int) -> list[Block]:
        blocks: list[Block] = []
        while len(blocks) < count and (block := self.arena.allocate(frame_bytes, owner)) is not None:
            blocks.append(block)
        return blocks

    def _allowed(self, owner: TenantOwner, count: int, size_bytes: int) -> int:
        """Give the blocks that fit into the owner's quota, once its own least recently used chunks are gone."""
        if not owner.quota_bytes:
            return count
        count = min(count, owner.quota_bytes // size_bytes)
        over_bytes = owner.used_bytes + count * size_bytes - owner.quota_bytes
        going: list[bytes] = []
        for digest in self._index.victims(owner):
            if over_bytes <= 0:
                break
            going.append(digest)
            over_bytes -= self._index.size_bytes(digest)
        self._evict(going)
        return min(count, max(0, owner.quota_bytes - owner.used_bytes) // size_bytes)

    def _make_room(self, owner: TenantOwner, count: int, size_bytes: int) -> bool:
        """Evict for some of so many blocks, at least one; False where that is not possible."""
        going: list[bytes] = []
        for digest in self._index.victims():
            if len(going) == count or self._index.size_bytes(digest) < size_bytes:
                break
            going.append(digest)
        self._evict(going or self._neighbours(owner, count, size_bytes))
        return bool(going) or self.arena.fits(size_bytes)

    def _neighbours(self, owner: TenantOwner, count: int, size_bytes: int) -> list[bytes]:
        """Choose small chunks side by side; a tenant's own first where the memory is fragmented, not full."""
        extents = self.arena.extents()
        scopes: list[Owner | None] = [None]
        if owner.quota_bytes and sum(free for _, free in extents) >= size_bytes:
            scopes.insert(0, owner)
        for scope in scopes:
            oldest_bytes, complete = _FIRST_LOOK * count * size_bytes, False
            while not complete:  # a window among the oldest is the best of all: seldom must many be looked at
                pieces, complete = self._index.pieces(extents, oldest_bytes=oldest_bytes, owner=scope)
                for wanted in _halves(count):
                    going = coldest_window(pieces, wanted * size_bytes)
                    if going:
                        return going
                oldest_bytes *= _FIRST_LOOK
        return []

    def _evict(self, going: Sequence[bytes]) -> None:
        gone = [(digest, block) for digest in going if (block := self._index.pop(digest)) is not None]
        if not gone:
            return
        for _, block in gone:
            if isinstance(block.account, TenantOwner):
                block.account.tally.evicted_chunks += 1
        self.arena.release([block for _, block in gone])
        self._evicted.inc(len(gone))
        self._departures.note(gone)

    def lend_no_more(self) -> None:
        """Give out no block any more, so that who still copies into or out of one shares it with nobody."""
        with self._lock:
            self._is_over = True

    def tenant_usage(self) -> tuple[TenantUsage, ...]:
        """Tell how each tenant's label fares."""
        with self._lock:
            return self.tenants.report()

    def commit(self, namespace: KeyNamespace, digests: Sequence[bytes], blocks: Sequence[Block]) -> None:
        """Make filled blocks findable, if `use_hot`; the caller keeps its own references.

        A chunk that is there already stays; the first writer wins.
        """
        with self._lock:
            if not self.use_hot:
                return
            now_s = time.monotonic()
            for digest, block in zip(digests, blocks, strict=True):
                if digest not in self._index:
                    self.arena.retain((block,))
                    block.kept_since_s, block.namespace = now_s, namespace
                    self._index.put(digest, block)
            self._index.touch([digest for digest in digests if digest in self._index])

    def missing(self, digests: Sequence[bytes]) -> list[int]:
        """Give the places of the digests that are not here."""
        with self._lock:
            return [place for place, digest in enumerate(digests) if digest not in self._index]

    def lease_run(self, digests: Sequence[bytes]) -> list[Block]:
        """Lend the leading run of digests that are here: one reference each, of the caller's."""
        with self._lock:
            found = self._index.leading_run(digests)
            self.arena.retain(found)
            self._index.touch(digests[: len(found)])
        return found

    def has_run(self, digests: Sequence[bytes]) -> bool:
        """Whether all digests are here."""
        with self._lock:
            return all(digest in self._index for digest in digests)

    def clear(self) -> Cleared:
        """Make every chunk unfindable; leased ones are freed when their readers let go."""
        with self._lock:
            return self._clear()

    def _clear(self) -> Cleared:
        blocks = self._index.drain()
        leased = sum(block.references > 1 for block in blocks)
        self.arena.release(blocks)
        return Cleared(backend=NAME, chunks=len(blocks), leased=leased)

    def set_use_hot(self, use_hot: bool) -> Cleared:
        """Change the operator's setting; chunks are cleared when nothing holds `use_hot` on any more."""
        with self._lock:
            self._operator_hot = use_hot
            return self._clear_if_cold()

    def hold(self, owner: str) -> None:
        """Keep `use_hot` on for this owner; holding twice is holding once."""
        with self._lock:
            self._holders.add(owner)

    def release_hold(self, owner: str) -> Cleared:
        """End the owner's hold; clear if `use_hot` thereby goes off, so that no temporary entry stays."""
        with self._lock:
            self._holders.discard(owner)
            return self._clear_if_cold()

    def _clear_if_cold(self) -> Cleared:
        return Cleared(backend=NAME, chunks=0) if self.use_hot else self._clear()


def _halves(count: int) -> Iterator[int]:
    while count:
        yield count
        count //= 2
