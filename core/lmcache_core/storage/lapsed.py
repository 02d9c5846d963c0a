"""Promises that expired before their retrieve came, so that it can be told what the retrieve has lost by that."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable

from lmcache_core.storage.fetch import Promised
from lmcache_core.storage.run import ChunkRun, Request

_KEPT = 256
"""Most promises remembered, the latest: each keeps the digests of its request, about 70 bytes a chunk."""


class LapsedPromises:
    """The latest promises that nobody came for in time. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_request: OrderedDict[Hashable, Promised] = OrderedDict()

    def note(self, expired: Iterable[tuple[Hashable, Promised]]) -> None:
        """Remember promises, of one request the latest."""
        with self._lock:
            for request, promised in expired:
                self._by_request[request] = promised
                self._by_request.move_to_end(request)
            while len(self._by_request) > _KEPT:
                self._by_request.popitem(last=False)

    def take(self, run: ChunkRun, request: Request) -> Promised | None:
        """Forget the request's promise; give it if it was about these tokens."""
        if not self._by_request:
            return None
        with self._lock:
            promised = self._by_request.pop(request, None)
        return promised if promised is not None and run.continues(promised.digests) else None
