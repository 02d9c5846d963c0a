"""The one thread of usage telemetry: it alone touches the network."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary

THREAD_NAME = "lmcache-usage-continuous"
FINAL_FLUSH_S = 2.0
"""Longest that stopping waits for the last report."""

_JITTER = 0.1  # share of the interval, so that a fleet started at once does not report at once


class Flushed(Protocol):
    """What the thread drives."""

    @property
    def is_full(self) -> bool:
        """Whether a buffer is full before the interval ends."""

    def announce(self) -> None:
        """Send what does not wait for an interval."""

    def flush(self, timeout_s: float | None = None) -> str:
        """Send an interval's messages; give ``""`` or the first reason why one did not arrive."""


class UsageFlushThread(PeriodicThread):
    """Announces at once and flushes once an interval, or earlier when a buffer is full.

    Args:
        reporter: What it drives.
        interval_s: Seconds between two flushes, give or take a tenth.
        registry: Of the cache instance's threads.
        dice: Gives a number from 0 to 1.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        reporter: Flushed,
        *,
        interval_s: float,
        registry: PeriodicThreadRegistry | None,
        dice: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(THREAD_NAME, interval_s, ThreadLevel.LOW, registry=registry, clock=clock)
        self._reporter = reporter
        self._dice = dice
        self._now_s = clock
        self._due_s = clock() + self._pause_s()
        self._stop_by_s: float | None = None

    def stop(self, timeout_s: float = FINAL_FLUSH_S) -> bool:
        """Send the last interval and end, within so long; what cannot be sent by then is lost."""
        self._stop_by_s = self._now_s() + timeout_s
        return super().stop(timeout_s)

    def _execute(self) -> ThreadRunSummary:
        self._reporter.announce()
        if not self._reporter.is_full and self._now_s() < self._due_s:
            return ThreadRunSummary(success=True, message="nothing due")
        reason = self._reporter.flush()
        self._due_s = self._now_s() + self._pause_s()
        return ThreadRunSummary(success=not reason, message=f"not delivered: {reason}" if reason else "delivered")

    def _next_wait_s(self) -> float:
        return max(0.0, self._due_s - self._now_s())

    def _on_exit(self) -> None:
        left_s = self._stop_by_s - self._now_s() if self._stop_by_s is not None else 0.0
        if left_s > 0:
            self._reporter.flush(left_s)

    def _pause_s(self) -> float:
        return self.interval_s * (1 - _JITTER + 2 * _JITTER * self._dice())
