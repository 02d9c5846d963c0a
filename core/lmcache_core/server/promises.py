"""Which session looked up what, so that a dead one's promises are given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lmcache_core.access.local import LocalAccess
from lmcache_core.storage.run import ChunkRun, Found


@dataclass(slots=True, eq=False)
class Promised:
    """What one lookup promised.

    Attributes:
        session: Whose.
        call: The lookup's number in its session.
        access: Where the promise is kept.
        runs: Enough of the lookup's runs to find the promise again.
        request_id: The lookup's.
        found: With the promises.
        expires_s: After it storage has let go of the promise anyway.
        waiting: Ranks whose retrieve has not come yet.
    """

    session: int
    call: int
    access: LocalAccess
    runs: tuple[ChunkRun, ...]
    request_id: str
    found: Found
    expires_s: float
    waiting: int


class PromiseLedger:
    """Promises that may still be held, by session and by request. For the control thread alone.

    A scheduler looks up for workers that retrieve in sessions of their own: whoever comes for a promise,
    the oldest entry of that request goes.
    """

    def __init__(self) -> None:
        self._by_session: dict[int, dict[int, Promised]] = {}
        self._by_request: dict[tuple[bytes, str | bytes], deque[Promised]] = {}

    def count(self, session: int) -> int:
        """Promises of a session that nobody has come for."""
        return len(self._by_session.get(session, ()))

    def note(
        self,
        *,
        session: int,
        call: int,
        access: LocalAccess,
        runs: Sequence[ChunkRun],
        request_id: str,
        found: Found,
    ) -> None:
        """Enter what a lookup found; what it promised of some ranks is of no use where another has nothing."""
        if not found.chunks:
            access.forsake(runs, request_id, found)
            return
        self.forsake(session, call)  # of a client that uses a number twice
        promises = [part.promise for part in found.parts or (found,) if part.promise is not None]
        tails = tuple([ChunkRun(run.namespace, run.digests[-1:], run.codec) for run in runs])
        expires_s = max([promise.expires_at for promise in promises], default=0.0)
        entry = Promised(session, call, access, tails, request_id, found, expires_s, len(tails))
        self._by_session.setdefault(session, {})[call] = entry
        for run in tails:
            self._by_request.setdefault(_key(run, request_id), deque()).append(entry)

    def taken(self, run: ChunkRun, request_id: str) -> None:
        """Note that the oldest promise of a run and request is used or released."""
        key = _key(run, request_id)
        waiting = self._by_request.get(key)
        if waiting is None:
            return
        entry = waiting.popleft()
        if not waiting:
            del self._by_request[key]
        entry.waiting -= 1
        if not entry.waiting:
            self._strike(entry)

    def forsake(self, session: int, call: int) -> bool:
        """Give up what one lookup promised; False if there is no such entry."""
        entry = self._by_session.get(session, {}).get(call)
        if entry is None:
            return False
        self._remove(entry)
        entry.access.forsake(entry.runs, entry.request_id, entry.found)
        return True

    def drop(self, session: int) -> int:
        """Give up everything a session was promised; give how many lookups that were."""
        calls = list(self._by_session.get(session, ()))
        for call in calls:
            self.forsake(session, call)
        return len(calls)

    def expire(self, now_s: float) -> None:
        """Strike out what storage has let go of."""
        for entries in list(self._by_session.values()):
            for entry in [entry for entry in entries.values() if entry.expires_s <= now_s]:
                self._remove(entry)

    def _remove(self, entry: Promised) -> None:
        self._strike(entry)
        for run in entry.runs:
            key = _key(run, entry.request_id)
            waiting = self._by_request.get(key)
            if waiting is not None and entry in waiting:
                waiting.remove(entry)
                if not waiting:
                    del self._by_request[key]

    def _strike(self, entry: Promised) -> None:
        calls = self._by_session.get(entry.session, {})
        if calls.get(entry.call) is entry:
            del calls[entry.call]
            if not calls:
                del self._by_session[entry.session]


def _key(run: ChunkRun, request_id: str) -> tuple[bytes, str | bytes]:
    return run.namespace.seed, request_id or (run.digests[-1] if run.digests else b"")
