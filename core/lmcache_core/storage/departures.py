"""Chunks that tier 0 has let go, between the lock under which they go and the event that tells of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import Block


class Departures:
    """Notes what goes while a lock is held, and tells of it when it is not: nobody waits for an event to be built.

    Events come in the order in which the chunks went, and before `tell` returns to whoever made them go.

    Args:
        journal: Where the events go.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._gone: deque[tuple[float, Sequence[tuple[bytes, Block]]]] = deque()
        self._noted = 0
        self._told = 0
        self._telling = threading.Lock()

    def note(self, gone: Sequence[tuple[bytes, Block]]) -> None:
        """Keep digests and blocks that have just gone; under the lock of tier 0."""
        if self._journal.hears_evictions:
            self._gone.append((time.monotonic(), gone))
            self._noted += 1

    def tell(self) -> None:
        """Tell of all that was noted; without the lock of tier 0."""
        if self._told == self._noted:
            return
        with self._telling:  # also waits for who tells of what this thread has noted
            while self._gone:
                now_s, gone = self._gone.popleft()
                self._journal.l1_evicted(
                    [(block.namespace, digest) for digest, block in gone if block.namespace is not None],
                    [now_s - block.kept_since_s for _, block in gone],
                )
                self._told += 1
