"""Chunks of a prefix on their way into the arena, all missing ones in flight at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from lmcache_core.codec.frame import FrameCodec
from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.storage import LoadResult, StorageBackend
from lmcache_core.events.journal import Journal, LoadTask
from lmcache_core.memory.arena import Arena, Block
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.breaker import Permit
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.run import ChunkRun

_BATCH_BYTES = 8 << 20
"""One worker's share: large chunks travel alone, small ones together."""


@dataclass(frozen=True, slots=True)
class TierRun:
    """A run of chunks that one tier said it has: places `start` to `stop` of the request."""

    tier: GuardedTier
    start: int
    stop: int


Plan: TypeAlias = tuple[TierRun, ...]
"""Runs that follow one another, behind the chunks of tier 0."""


@dataclass(frozen=True, slots=True)
class Promised:
    """What a lookup found, and where it found what is not in tier 0.

    Of what it did not find, it keeps the last digest alone: a lookup may ask for far more chunks than there are.
    """

    digests: Sequence[bytes]
    """Of the leading chunks that were found."""
    plan: Plan
    resident: int
    """Leading chunks that were in tier 0."""
    asked: int
    """Chunks that were looked up."""
    end: bytes
    """Digest of the last of those."""

    @classmethod
    def of(cls, run: ChunkRun, plan: Plan, resident: int) -> Promised:
        """Tell what was found of a run that has chunks."""
        found = plan[-1].stop if plan else resident
        return cls(run.digests[:found], plan, resident, len(run.digests), run.digests[-1])

    @property
    def chunks(self) -> int:
        """Leading chunks that were found."""
        return len(self.digests)

    def serves(self, run: ChunkRun) -> bool:
        """Whether a fetch of this run is one of what was looked up; digests are chained.

        A run that ends behind what was found, and before what was asked for, is not known to be.
        """
        if len(run.digests) <= len(self.digests):
            return run.continues(self.digests)
        return len(run.digests) >= self.asked and run.digests[self.asked - 1] == self.end


@dataclass(frozen=True, slots=True)
class _Group:
    tier: GuardedTier
    permit: Permit
    task: LoadTask
    blocks: Sequence[Block]
    began_s: float
    deadline: float
    future: Future[list[str]]


class Fetcher:
    """Loads runs of chunks and checks every frame before anyone sees it.

    Args:
        arena: Where the blocks are from.
        metrics: Families to count in.
        journal: Where events go.
    """

    def __init__(self, arena: Arena, metrics: CacheMetrics, journal: Journal) -> None:
        self._arena = arena
        self._metrics = metrics
        self._journal = journal

    def fetch(
        self,
        runs: Sequence[tuple[TierRun, Sequence[ChunkKey]]],
        codec: FrameCodec,
        blocks: list[Block],
        *,
        deadline: float,
        request_id: str = "",
    ) -> Iterator[Sequence[Block]]:
        """Load runs in order; give the blocks, some at a time, whose frames are whole and the right ones.

        Stops at the first chunk that is missing, late or damaged. What is given belongs to the
        caller; the references of all other blocks are dropped here, of a late load only when its
        worker is done with them.

        Args:
            runs: Which chunks of which tier.
            codec: Knows what a whole frame of theirs is.
            blocks: With one reference each, handed over; not more than there are chunks. Fewer mean that tier 0
                has no room for the last ones, which is told.
            deadline: After it nobody waits any more.
            request_id: On whose behalf, for events.
        """
        self._tell_refused(runs, len(blocks), request_id)
        groups: list[_Group] = []
        permits: list[tuple[GuardedTier, Permit]] = []
        try:
            self._start(runs, codec, blocks, groups, permits, deadline=deadline, request_id=request_id)
            while groups:
                first = groups[0]
                defects = first.tier.finish_load(
                    first.permit, first.future, began_s=first.began_s, deadline=first.deadline
                )
                if defects is None:
                    self._journal.l2_load_completed(first.task, delivered=0, reason="other")
                    return
                group = groups.pop(0)
                whole = next((place for place, defect in enumerate(defects) if defect), len(defects))
                self._metrics.loaded_chunks.labels(group.tier.name).inc(whole)
                self._arena.release(group.blocks[whole:])
                self._journal.l2_load_completed(group.task, delivered=whole, reason=_event_reason(defects[whole:]))
                if whole < len(defects):
                    self._report(group, defects)
                    yield group.blocks[:whole]
                    return
                yield group.blocks
        finally:
            self._arena.release(blocks)
            for tier, permit in permits:
                tier.end_loads(permit, passed=not groups)
            for group in groups:
                self._abandon(group)

    def _start(
        self,
        runs: Sequence[tuple[TierRun, Sequence[ChunkKey]]],
        codec: FrameCodec,
        blocks: list[Block],
        groups: list[_Group],
        permits: list[tuple[GuardedTier, Permit]],
        *,
        deadline: float,
        request_id: str,
    ) -> None:
        """Move blocks, as far as they go, into groups that are in flight; up to a tier that lets nobody in."""
        batch_chunks = max(1, _BATCH_BYTES // codec.frame_bytes)
        for run, keys in runs:
            permit = run.tier.admit()
            if permit is None:
                return
            permits.append((run.tier, permit))
            capped = run.tier.cap(deadline)
            for start in range(0, len(keys), batch_chunks):
                share = keys[start : start + batch_chunks][: len(blocks)]
                if share:
                    task = LoadTask(run.tier.known_as, share, self._journal.next_task(), request_id)
                    groups.append(
                        self._start_group(run.tier, permit, task, codec, blocks[: len(share)], deadline=capped)
                    )
                    del blocks[: len(share)]

    def _start_group(
        self,
        tier: GuardedTier,
        permit: Permit,
        task: LoadTask,
        codec: FrameCodec,
        blocks: Sequence[Block],
        *,
        deadline: float,
    ) -> _Group:
        def load(backend: StorageBackend) -> list[str]:
            results = backend.load_into(task.keys, [block.view for block in blocks], deadline=deadline)
            return [_defect(codec, *outcome) for outcome in zip(results, task.keys, blocks, strict=True)]

        self._journal.l2_load_submitted(task)
        return _Group(tier, permit, task, blocks, time.monotonic(), deadline, tier.start_load(load))

    def _tell_refused(self, runs: Sequence[tuple[TierRun, Sequence[ChunkKey]]], room: int, request_id: str) -> None:
        for run, keys in runs:
            lacking, room = keys[room:], max(0, room - len(keys))
            if lacking:
                self._journal.l1_allocation_failed("l2_prefetch", lacking, request_id)
                self._journal.l2_load_failed(run.tier.known_as, lacking, request_id, "l1_oom")

    def _report(self, group: _Group, defects: Sequence[str]) -> None:
        damaged: list[ChunkKey] = []
        for key, defect in zip(group.task.keys, defects, strict=True):
            if defect:
                self._metrics.lost_chunks.labels(group.tier.name, defect).inc()
            if defect.startswith("corrupt"):
                damaged.append(key)
        if "failed" in defects:
            group.tier.count_load_failure(group.permit, "a chunk could not be read")
        if damaged:
            group.tier.forget(damaged, "damaged: its frame failed the check")

    def _abandon(self, group: _Group) -> None:
        group.future.cancel()
        group.future.add_done_callback(lambda _: self._arena.release(group.blocks))


def _defect(codec: FrameCodec, result: LoadResult, key: ChunkKey, block: Block) -> str:
    """Judge one chunk on the worker's thread: ``""`` if whole, else the reason to count."""
    if result is LoadResult.HIT:
        defect = codec.defect(block.view, key.digest)
        block.sealed = defect is None
        return "" if defect is None else f"corrupt_{defect}"
    return "gone" if result is LoadResult.MISS else result.value


def _event_reason(defects: Sequence[str]) -> str:
    """Why a load fell short, in the words of the event."""
    if not defects:
        return ""
    return {"gone": "not_found", "failed": "other"}.get(defects[0], "corrupt")
