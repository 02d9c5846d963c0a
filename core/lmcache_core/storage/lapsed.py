"""Promises that expired before their retrieve came, so that it can be told what the retrieve has lost by that."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from lmcache_core.memory.lease import PromiseTable
from lmcache_core.storage.fetch import Promised
from lmcache_core.storage.run import ChunkRun, Request

_MOST_PROMISES = 256
"""Promises remembered, the latest."""

_MOST_DIGESTS = 1 << 16
"""Digests remembered in all, of the latest promises; about 90 bytes each, 6 MiB."""


class LapsedPromises:
    """The latest promises that nobody came for in time, of requests that have a name. Any thread.

    Without one, a retrieve that comes late and one that had no lookup are the same.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_request: OrderedDict[Hashable, Promised] = OrderedDict()
        self._digests = 0

    def __len__(self) -> int:
        return len(self._by_request)

    def sweep(self, promises: PromiseTable[Promised]) -> int:
        """End the promises that are past their time, and remember of each request the latest; give how many ended.

        Whoever finds a promise gone from the table finds it here: `take` waits for this.
        """
        with self._lock:
            expired = promises.expire()
            for request, promised in expired:
                if isinstance(request, Request) and request.name:
                    self._note(request, promised)
        return len(expired)

    def take(self, run: ChunkRun, request: Request) -> Promised | None:
        """Forget the request's promise; give it, without its plan, if it was about these tokens."""
        promised = self.forget(request)
        return promised if promised is not None and promised.serves(run) else None

    def forget(self, request: Request) -> Promised | None:
        """Forget the request's promise, and give it."""
        if not request.name:
            return None
        with self._lock:
            return self._pop(request)

    def _note(self, request: Request, promised: Promised) -> None:
        self._pop(request)
        self._by_request[request] = replace(promised, plan=())
        self._digests += promised.chunks
        while len(self._by_request) > _MOST_PROMISES or self._digests > _MOST_DIGESTS:
            self._pop(next(iter(self._by_request)))

    def _pop(self, request: Hashable) -> Promised | None:
        promised = self._by_request.pop(request, None)
        if promised is not None:
            self._digests -= promised.chunks
        return promised
