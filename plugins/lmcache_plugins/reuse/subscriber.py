"""Feeds the tracker from the bus, and passes on what it has counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import lmcache_core  # the tracker and its numpy come with their first use, not with every start
from lmcache_core import Event, EventSubscriber, EventType, UsageMessage
from lmcache_plugins.reuse.requests import RecentRequests

if TYPE_CHECKING:
    from lmcache_core import ChunkReuseTracker, ReusePatternMessage, ReuseReports, ReuseTotals

log = logging.getLogger(__name__)


class ReuseSubscriber(EventSubscriber):
    """Shows every lookup to a tracker once, and leaves a report for the command line now and then.

    Args:
        tracker: Used under this object's lock only.
        reports: Where reports go; None for nowhere.
        report_interval_s: Seconds between two.
        chunk_tokens: Tokens in one chunk, for the report.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        tracker: ChunkReuseTracker,
        reports: ReuseReports | None,
        *,
        report_interval_s: float,
        chunk_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracker = tracker
        self._reports = reports
        self._report_interval_s = report_interval_s
        self._chunk_tokens = chunk_tokens
        self._chunk_bytes = 0
        self._clock = clock
        self._lock = threading.Lock()  # lookups come on the bus's thread, usage_messages on the reporter's
        self._requests = RecentRequests()
        self._told = tracker.totals()
        self._report_due_s = clock() + report_interval_s
        self._report_failed = False
        self._tidied = False

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        """Ask for lookups, and for stores, which tell how large a chunk is."""
        return {EventType.MP_LOOKUP: self._on_lookup, EventType.MP_STORE_END: self._on_store}

    def usage_messages(self) -> Iterable[UsageMessage]:
        """Give what was counted since the last call."""
        with self._lock:
            self._tracker.expire(self._clock())
            totals = self._tracker.totals()
            interval, self._told = totals.since(self._told), totals
            tracked, horizon_s = self._tracker.tracked, self._tracker.horizon_s
        return (self._message(interval, tracked, horizon_s),)

    def shutdown(self) -> None:
        """Leave the last report."""
        self._report()

    def _message(self, interval: ReuseTotals, tracked: int, horizon_s: float) -> ReusePatternMessage:
        return lmcache_core.ReusePatternMessage(
            sample_rate=1.0 / self._tracker.sample_rate,
            sampled_accesses=interval.sampled,
            seen_before_accesses=interval.seen_before,
            stored_accesses=interval.found + interval.lost,
            tracked=tracked,
            horizon_seconds=horizon_s,
            retired_idle=interval.retired_idle,
            retired_by_cap=interval.retired_by_cap,
            lifespan_histogram=dict(interval.lifespan),
            inter_reuse_gap_histogram=dict(interval.gap),
            reuse_lifespan_histogram=dict(interval.reuse_lifespan),
        )

    def _on_lookup(self, event: Event) -> None:
        metadata = event.metadata
        digests = metadata["chunk_hashes"]
        now_s = self._clock()
        known = self._requests.count_known(metadata.get("request_id") or event.session_id, digests, now_s)
        if known < len(digests):
            with self._lock:
                self._tracker.observe(
                    digests[known:],
                    now_s,
                    found=max(0, metadata.get("found_count", 0) - known),
                    salt_hash=metadata.get("cache_salt", ""),
                )
        if now_s >= self._report_due_s:
            self._report_due_s = now_s + self._report_interval_s
            self._report()

    def _on_store(self, event: Event) -> None:
        stored = event.metadata.get("stored_count", 0)
        if stored:
            self._chunk_bytes = event.metadata["total_bytes"] // stored

    def _report(self) -> None:
        if self._reports is None:
            return
        with self._lock:
            self._tracker.expire(self._clock())
            snapshot = lmcache_core.ReuseSnapshot.of(
                self._tracker, chunk_tokens=self._chunk_tokens, chunk_bytes=self._chunk_bytes
            )
        if not self._tidied:
            self._tidied = True
            self._reports.remove_stale()
        try:
            self._reports.write(snapshot)
        except OSError as error:
            if not self._report_failed:
                log.warning("the reuse report cannot be written to %s: %s", self._reports.folder, error)
            self._report_failed = True
        else:
            self._report_failed = False
