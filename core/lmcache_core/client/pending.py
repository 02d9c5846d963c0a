"""A lookup that the server is still at; needs a socket, but no thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from lmcache_core.client.failures import ServerCallError, ServerGoneError, ServerLateError
from lmcache_core.client.sockets import CallSocket, SocketPool
from lmcache_core.storage.run import Found
from lmcache_core.wire.messages import Answer, Forsake, Message


class PendingRemote:
    """The `PendingFound` of a lookup over the wire. Any thread, one at a time.

    Holds no session: one that is kept, though long answered, would keep the arena mapped.

    Args:
        pool: Of the session.
        message: The lookup.
        call: Its number.
        read: Makes what was found of the answer; raises a `ServerCallError` for a refusal.
    """

    def __init__(self, pool: SocketPool, message: Message, call: int, read: Callable[[Answer], Found]) -> None:
        self._pool = pool
        self._call = call
        self._read = read
        self._lock = threading.Lock()
        self._answer: Answer | None = None
        self._failure: tuple[type[ServerCallError], str] | None = None  # no error: it would hold frames, and those us
        self._socket: CallSocket | None = pool.take()
        try:
            self._socket.send(message, call)
        except BaseException:
            self._give_back()
            raise

    def __del__(self) -> None:
        self._give_back()

    def done(self) -> bool:
        """Whether `result` would not wait. Never blocks, never raises."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread waits for it just now
        try:
            socket = self._socket
            if socket is None:
                return True
            try:
                answer = None if self._pool.is_closed else socket.peek(self._call)
                if answer is None and (end := self._pool.end()):
                    raise ServerGoneError(end)
            except ServerCallError as error:
                self._finish(error)
            else:
                if answer is None:
                    return False
                self._finish(answer)
            return True
        finally:
            self._lock.release()

    def result(self, timeout_s: float) -> Found | None:
        """Wait, at most so long; None when late. Raises what the lookup raised."""
        if not self.done():
            with self._lock:
                self._wait(time.monotonic() + timeout_s)
        if self._failure is not None:
            kind, why = self._failure
            raise kind(why)
        return None if self._answer is None else self._read(self._answer)

    def cancel(self) -> None:
        """Give up the lookup and what it has promised or will promise."""
        with self._lock:
            if self._failure is None:
                self._failure = ServerGoneError, "the lookup was given up"
                self._forsake(Forsake(self._pool.session, self._call))
            self._give_back()

    def _forsake(self, message: Forsake) -> None:
        """Say so behind the lookup, on its own socket while that is here; a call that is forsaken gets no answer."""
        socket = self._socket
        with suppress(ServerCallError):
            if socket is None or self._pool.is_closed:
                self._pool.tell(message)
            else:
                socket.send(message)
                socket.owed.discard(self._call)

    def _wait(self, deadline: float) -> None:
        socket = self._socket
        if socket is None:
            return
        try:
            self._finish(socket.receive(self._call, deadline))
        except ServerLateError:
            return
        except ServerCallError as error:
            self._finish(error)

    def _finish(self, outcome: Answer | ServerCallError) -> None:
        if isinstance(outcome, ServerCallError):
            self._failure = type(outcome), str(outcome)
        else:
            self._answer = outcome
        self._give_back()

    def _give_back(self) -> None:
        socket, self._socket = getattr(self, "_socket", None), None
        if socket is not None:
            self._pool.give(socket)
