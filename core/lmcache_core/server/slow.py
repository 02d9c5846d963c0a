"""Calls that must ask a further tier: done elsewhere, answered when they are done."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.wire.messages import Message, RefusalCode
from lmcache_core.workers import WorkerPool


@dataclass(slots=True, eq=False)
class SlowCall:
    """One call under way elsewhere. For the control thread alone, but for `outcome`.

    Attributes:
        session: Whose.
        call: Its number there.
        operation: For the counts.
        sender: Where the answer goes.
        began_s: When it came.
        finish: Books the result, on the control thread; gives the answer.
        undo: Gives the result back, on the control thread, when nobody waits any more.
        cancel: Ends the work early if it can be.
        dropped: Whether nobody waits any more.
        outcome: Gives the result or raises; set when the work is over.
    """

    session: int
    call: int
    operation: str
    sender: bytes
    began_s: float
    finish: Callable[[Any], Message]
    undo: Callable[[Any], None]
    cancel: Callable[[], object] = field(default=lambda: None)
    dropped: bool = False
    outcome: Callable[[], Any] = field(default=lambda: None)

    def drop(self) -> None:
        """Answer nobody; give back what it gets."""
        if not self.dropped:
            self.dropped = True
            self.cancel()


class SlowCalls:
    """All of them, with a bound.

    Args:
        most: How many may be under way.
        wake: Makes the control thread look, from any thread.
    """

    def __init__(self, most: int, wake: Callable[[], None]) -> None:
        self._most = most
        self._wake = wake
        self._over: queue.SimpleQueue[SlowCall] = queue.SimpleQueue()
        self._under_way: dict[SlowCall, None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, slow: SlowCall, pool: WorkerPool, work: Callable[[], Any]) -> None:
        """Have the work done by a pool.

        Raises:
            RefusedCallError: Too many calls are under way.
        """
        self.enter(slow)
        try:
            future = pool.submit(work)
        except BaseException:
            del self._under_way[slow]
            raise
        slow.cancel = future.cancel
        future.add_done_callback(lambda done: self.report(slow, done.result))

    def enter(self, slow: SlowCall) -> None:
        """Enter a call whose work somebody else does, who will `report` it.

        Raises:
            RefusedCallError: Too many calls are under way.
        """
        if len(self._under_way) >= self._most:
            raise RefusedCallError(
                RefusalCode.BUSY, f"{len(self._under_way)} calls wait for slow tiers already; recompute"
            )
        self._under_way[slow] = None

    def leave(self, slow: SlowCall) -> None:
        """Take a call out whose work could not begin."""
        self._under_way.pop(slow, None)

    def report(self, slow: SlowCall, outcome: Callable[[], Any]) -> None:
        """Say that the work is over; from any thread."""
        slow.outcome = outcome
        self._over.put(slow)
        if self._closed:
            self._give_back()
        else:
            self._wake()

    def over(self) -> Iterator[SlowCall]:
        """Give and take out those whose work is over; never waits."""
        while True:
            try:
                slow = self._over.get_nowait()
            except queue.Empty:
                return
            self.leave(slow)
            yield slow

    def close(self) -> None:
        """Answer nobody any more: what is over, or will be, is given back, whatever thread that is on."""
        self._closed = True
        for slow in list(self._under_way):
            slow.drop()
        self._give_back()

    def _give_back(self) -> None:
        for slow in self.over():
            with contextlib.suppress(Exception):  # it failed, so that there is nothing to give back
                slow.undo(slow.outcome())

    def drop(self, session: int, call: int) -> bool:
        """Let nobody wait for a call; False if none is under way."""
        for slow in list(self._under_way):
            if slow.call == call and slow.session == session:
                slow.drop()
                return True
        return False

    def drop_all(self, session: int) -> None:
        """Let nobody wait for any call of a session."""
        for slow in list(self._under_way):
            if slow.session == session:
                slow.drop()
