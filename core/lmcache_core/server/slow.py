"""Calls that must ask a further tier: done elsewhere, answered when they are done."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lmcache_core.server.turns import Turns
from lmcache_core.wire.messages import Message
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
    """All of them, with a bound and in turns. For the control thread alone, but for `report` and `count`.

    Args:
        most: How many may be under way.
        at_once: How many of these may run; the others wait for their turn.
        wake: Makes the control thread look, from any thread.
    """

    def __init__(self, most: int, at_once: int, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._over: queue.SimpleQueue[SlowCall] = queue.SimpleQueue()
        self._under_way: dict[SlowCall, Callable[[], None]] = {}
        self._turns: Turns[SlowCall] = Turns(most, at_once)
        self._closed = False

    def __len__(self) -> int:
        return len(self._under_way)

    def count(self, session: int) -> int:
        """Calls of a session that are under way. Any thread."""
        return self._turns.count(session)

    def begin(self, slow: SlowCall, pool: WorkerPool, work: Callable[[], Any]) -> None:
        """Have the work done by a pool, when its turn comes.

        Raises:
            RefusedCallError: Too many calls are under way.
        """

        def start() -> None:
            future = pool.submit(work)
            slow.cancel = future.cancel
            future.add_done_callback(lambda done: self.report(slow, done.result))

        self.begin_by(slow, start)

    def begin_by(self, slow: SlowCall, start: Callable[[], None]) -> None:
        """Have the work begun when its turn comes, by somebody who will `report` it.

        Raises:
            RefusedCallError: Too many calls are under way.
        """
        self._turns.enter(slow.session, slow)
        self._under_way[slow] = start
        slow.cancel = lambda: self._withdraw(slow)
        self._go_on()

    def _go_on(self) -> None:
        while not self._closed:
            slow = self._turns.next()
            if slow is None:
                return
            try:
                self._under_way[slow]()
            except Exception as error:  # noqa: BLE001 - told to whoever waits for the call
                self.report(slow, partial(_raise, error))

    def _withdraw(self, slow: SlowCall) -> None:
        if self._turns.withdraw(slow.session, slow):
            self.report(slow, partial(_raise, CancelledError()))

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
            del self._under_way[slow]
            self._turns.leave(slow.session, slow)
            self._go_on()
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


def _raise(error: Exception) -> Any:
    raise error
