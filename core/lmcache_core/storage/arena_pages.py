"""The thread that gives the arena its pages before blocks need them."""

from __future__ import annotations

import logging

from lmcache_core.memory.arena import Arena
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary

log = logging.getLogger(__name__)

AHEAD_BYTES = 512 << 20
"""Kept ready beyond the furthest block: the system gives about 1 GB/s, and a model's prompts come with pauses."""

_STEP_BYTES = 2 << 20
"""One huge page; between two of them the thread can be told to end."""

_INTERVAL_S = 60.0
"""Blocks wake the thread; this is for the status, which shows that it lives."""


class ArenaPages(PeriodicThread):
    """Touches memory ahead of the blocks, so that an engine's step does not pay for it.

    A page that was never touched costs a copy ten times its own time. The whole arena at once, as LMCache takes it,
    would commit memory that a small cache never fills.

    Args:
        arena: Private to this process.
        registry: Of periodic threads.
        ahead_bytes: How much is kept ready.
    """

    def __init__(self, arena: Arena, registry: PeriodicThreadRegistry, ahead_bytes: int = AHEAD_BYTES) -> None:
        super().__init__("arena-pages-thread", _INTERVAL_S, ThreadLevel.LOW, registry=registry)
        self._arena = arena
        self._ahead_bytes = ahead_bytes
        self._ready_bytes = 0
        self._refused = ""

    @property
    def ready_bytes(self) -> int:
        """How much of the arena, from its beginning, has its pages."""
        return self._ready_bytes

    def _execute(self) -> ThreadRunSummary:
        if self._refused:
            return ThreadRunSummary(success=False, message=self._refused)
        want = min(self._arena.capacity_bytes, self._arena.reach_bytes + self._ahead_bytes)
        try:
            while self._ready_bytes < want and not self.stop_requested:
                step = min(_STEP_BYTES, self._arena.capacity_bytes - self._ready_bytes)
                self._arena.touch(self._ready_bytes, step)
                self._ready_bytes += step
        except OSError as error:
            self._refused = (
                f"the system gives no pages ahead beyond {self._ready_bytes} of {self._arena.capacity_bytes} bytes "
                f"({error.strerror}); the first copy into each page is slower"
            )
            log.warning("%s: %s", self.name, self._refused)
            return ThreadRunSummary(success=False, message=self._refused)
        if self._ready_bytes < self._arena.capacity_bytes:
            self._arena.call_beyond(self._ready_bytes - self._ahead_bytes // 2, self.wake)
        message = f"{self._ready_bytes} of {self._arena.capacity_bytes} bytes are ready"
        return ThreadRunSummary(success=True, message=message, extra_info={"ready_bytes": self._ready_bytes})
