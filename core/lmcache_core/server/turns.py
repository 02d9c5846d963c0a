"""Whose slow call may wait, and whose is next, so that no client's calls keep the others' out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.wire.messages import RefusalCode

T = TypeVar("T", bound=Hashable)

_SHARE = 3
"""One client may have so many times as many calls as there are places left for others; alone, three quarters of all."""

NOBODY = 0
"""Session of calls that need none."""


class Turns(Generic[T]):
    """Calls that wait and calls that run, by session. One thread at a time.

    Args:
        most: Calls at once, whether they run or wait.
        at_once: Calls that may run.
    """

    def __init__(self, most: int, at_once: int) -> None:
        self._most = most
        self._at_once = at_once
        self._waiting: dict[int, deque[T]] = {}
        self._running: dict[T, int] = {}
        self._calls: Counter[int] = Counter()
        self._runs: Counter[int] = Counter()

    def count(self, session: int) -> int:
        """Calls of a session that wait or run. Any thread."""
        return self._calls[session]

    def enter(self, session: int, call: T) -> None:
        """Let a call wait for its turn.

        Raises:
            RefusedCallError: Too many do, or too many of this session.
        """
        total, own = self._calls.total(), self._calls[session]
        if total >= self._most:
            raise RefusedCallError(RefusalCode.BUSY, f"{total} calls wait for slow tiers already; recompute")
        if session != NOBODY and own >= _SHARE * (self._most - total):
            raise RefusedCallError(
                RefusalCode.BUSY,
                f"{own} calls of this client wait for slow tiers already, its share of {self._most} "
                f"of which {total} are taken; recompute",
            )
        self._calls[session] += 1
        self._waiting.setdefault(session, deque()).append(call)

    def next(self) -> T | None:
        """Give the call that shall run now: the oldest one of the session with the fewest that run."""
        if not self._waiting or len(self._running) >= self._at_once:
            return None
        session = min(self._waiting, key=self._runs.__getitem__)
        calls = self._waiting.pop(session)
        call = calls.popleft()
        if calls:
            self._waiting[session] = calls  # behind the others
        self._running[call] = session
        self._runs[session] += 1
        return call

    def withdraw(self, session: int, call: T) -> bool:
        """Take back a call that waits; False for one that does not."""
        calls = self._waiting.get(session, ())
        if call not in calls:
            return False
        self._waiting[session].remove(call)
        if not self._waiting[session]:
            del self._waiting[session]
        return True

    def leave(self, session: int, call: T) -> None:
        """Forget a call that is over, or was withdrawn."""
        _less(self._calls, session)
        if self._running.pop(call, None) is not None:
            _less(self._runs, session)


def _less(counter: Counter[int], session: int) -> None:
    counter[session] -= 1
    if counter[session] <= 0:
        counter.pop(session, None)
