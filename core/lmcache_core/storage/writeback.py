"""Write-behind: chunks go to the further tiers from their own blocks, never in the way of a request."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass

from lmcache_core.codec.frame import FrameCodec
from lmcache_core.contracts.control import WriteBehindUsage
from lmcache_core.contracts.key import ChunkKey
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import Block
from lmcache_core.memory.lease import Lease
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.guard import GuardedTier

log = logging.getLogger(__name__)

_BATCH_BYTES = 8 << 20
"""Enough for one call to be worth its round trip, little enough to end well within a deadline."""


@dataclass(frozen=True, slots=True)
class _Job:
    key: ChunkKey
    codec: FrameCodec
    block: Block
    lease: Lease


class WriteBehind:
    """A bounded queue in front of one tier. What has no room is shed and counted, never waited for.

    Args:
        tier: Where the chunks go.
        limit_chunks: Most chunks waiting, at least 1.
        metrics: Families to count in.
        journal: Where events go.
    """

    def __init__(self, tier: GuardedTier, *, limit_chunks: int, metrics: CacheMetrics, journal: Journal) -> None:
        self._tier = tier
        self._limit = limit_chunks
        self._metrics = metrics
        self._journal = journal
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._writing = 0
        self._shed = 0
        self._stopped = False
        self._gauge = metrics.write_behind_queue.labels(tier.name)
        metrics.write_behind_limit.labels(tier.name).set(limit_chunks)
        self._threads = [
            threading.Thread(target=self._run, name=f"lmcache-{tier.name}-behind-{number}", daemon=True)
            for number in range(max(1, tier.connections // 2))
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, key: ChunkKey, codec: FrameCodec, block: Block, lease: Lease) -> bool:
        """Queue a chunk, which the codec seals before its first journey.

        Its lease is released when it is written, lost, or not accepted.
        """
        with self._changed:  # around the question too: a drain that refuses new chunks then waits for every other one
            reason = self._refusal()
            if not reason:
                self._waiting.append(_Job(key, codec, block, lease))
                self._gauge.set(len(self._waiting))
                self._changed.notify()
            self._shed += reason == "queue_full"
        if reason:
            lease.release()
            self._lose(1, reason)
        return not reason

    def _refusal(self) -> str:
        if self._tier.bypass.offers:
            return "bypassed"
        if self._tier.breaker.is_open:
            return "breaker_open"
        if self._stopped:
            return "stopped"
        return "queue_full" if len(self._waiting) >= self._limit else ""

    @property
    def waiting_chunks(self) -> int:
        """Chunks not written yet."""
        with self._changed:  # a batch on its way from one to the other is in neither
            return len(self._waiting) + self._writing

    def usage(self) -> WriteBehindUsage:
        """Tell how the queue fares."""
        dead = tuple(thread.name for thread in self._threads if not thread.is_alive())
        return WriteBehindUsage(
            backend=self._tier.name,
            waiting_chunks=len(self._waiting),
            limit_chunks=self._limit,
            shed_chunks=self._shed,
            dead_threads=() if self._stopped else dead,  # asked last: one that ends as it was told to is no dead one
        )

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything offered so far has been written or lost; False when that takes too long."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._writing, max(0.0, deadline - time.monotonic())
            )

    def stop(self, timeout_s: float) -> None:
        """Write what can be written in time; the rest is lost, counted and told: metrics end with the process."""
        self.flush(timeout_s)
        with self._changed:
            self._stopped = True
            left = list(self._waiting)
            self._waiting.clear()
            self._gauge.set(0)
            self._changed.notify_all()
        for job in left:
            job.lease.release()
        if left:
            log.warning("%s: %d chunk(s) were not written before the end, and are lost", self._tier.name, len(left))
        self._lose(len(left), "stopped")

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._write(batch)
            except Exception:  # noqa: PERF203 - the border of one batch: an error must not end a thread that writes
                log.exception("%s: writing %d chunk(s) failed", self._tier.name, len(batch))
                self._journal.l2_stored(self._tier.known_as, [job.key for job in batch], lost=True)
                self._lose(len(batch), "error")
            finally:
                with self._changed:
                    self._writing -= len(batch)
                    self._changed.notify_all()

    def _take(self) -> list[_Job]:
        """Wait for a batch; empty once stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            batch = self._next_batch()
            self._writing += len(batch)
            self._gauge.set(len(self._waiting))
            return batch

    def _next_batch(self) -> list[_Job]:
        """Take what waits, up to a batch's bytes, at least one chunk if there is one."""
        batch: list[_Job] = []
        left_bytes = _BATCH_BYTES
        while self._waiting and (not batch or self._waiting[0].block.frame_bytes <= left_bytes):
            batch.append(self._waiting.popleft())
            left_bytes -= batch[-1].block.frame_bytes
        return batch

    def _write(self, batch: list[_Job]) -> None:
        def finished() -> None:
            for job in batch:
                job.lease.release()

        try:
            self._seal(batch)
        except BaseException:
            finished()
            raise
        reason = self._tier.write([(job.key, job.block.view) for job in batch], finished)
        self._journal.l2_stored(self._tier.known_as, [job.key for job in batch], lost=bool(reason))
        if reason:
            self._lose(len(batch), reason)
        else:
            self._metrics.written_chunks.labels(self._tier.name).inc(len(batch))

    def _seal(self, batch: list[_Job]) -> None:
        for job in batch:
            if not job.block.sealed:
                # Two tiers may both seal one block: they write the same bytes.
                job.codec.seal(job.block.view, job.key.digest)
                job.block.sealed = True

    def _lose(self, chunks: int, reason: str) -> None:
        if chunks:
            self._metrics.lost_chunks.labels(self._tier.name, reason).inc(chunks)
