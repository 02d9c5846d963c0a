"""Connections that wait for their next call."""

from __future__ import annotations

import threading
from collections import deque

from lmcache_plugins.redis.wire import Wire


class WirePool:
    """Keeps idle connections, the last used first.

    Args:
        limit: Most connections to keep, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._idle: deque[Wire] = deque()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def take(self) -> Wire | None:
        """Give an idle connection."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def give(self, wire: Wire) -> None:
        """Take back a connection that owes no reply."""
        with self._lock:
            keep = not self._closed and len(self._idle) < self._limit
            if keep:
                self._idle.append(wire)
        if not keep:
            wire.close()

    def clear(self) -> None:
        """Close the idle connections: what broke one has probably broken all."""
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for wire in idle:
            wire.close()

    def close(self) -> None:
        """Close all, now and whenever one comes back; never waits."""
        with self._lock:
            self._closed = True
        self.clear()
