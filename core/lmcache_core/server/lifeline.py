"""The Unix socket that hands out the arena, and whose end says that a client is dead.

The kernel closes a connection only after the last thread of a process has stopped, so that the blocks
which a client was filling or reading can be given to others as soon as its end is seen here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmcache_core.contracts.control import ThreadReport
from lmcache_core.server.listener import peer_of
from lmcache_core.threads import ThreadLevel
from lmcache_core.wire.farewell import LAST_WORD

log = logging.getLogger(__name__)

TICKET_BYTES = 16
TICKET_TIMEOUT_S = 5.0
"""Longest that a connection may take to show its ticket."""

_GREETING = b"\x01"
_MOST_UNTICKETED = 64
_PAUSE_S = 1.0
"""Rest after the system refused a connection, as it does when files run out."""


@dataclass(slots=True)
class _Visitor:
    """One connection; `session` is 0 until its ticket has come."""

    connection: socket.socket
    came_s: float
    pid: int
    ticket: bytes = b""
    session: int = 0
    process: int = -1
    """A pidfd of the other side, which ends with it even where a forked child keeps the connection open."""


class Lifeline:
    """Watches over clients on a thread of its own.

    Args:
        listener: Listening; becomes this object's.
        arena_fd: Of the shared memory; -1 for none.
        on_end: Told, on this thread, the number of a session whose client is gone.
        accept: Lets one client in; raises OSError.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        arena_fd: int,
        on_end: Callable[[int], None],
        accept: Callable[[socket.socket], socket.socket] = lambda listener: listener.accept()[0],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        listener.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self._listener = listener
        self._arena_fd = arena_fd
        self._on_end = on_end
        self._accept = accept
        self._clock = clock
        self._tickets: dict[bytes, int] = {}
        self._attached: set[int] = set()
        self._forgotten: list[int] = []
        self._visitors: dict[int, _Visitor] = {}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell, self._clapper = socket.socketpair()
        self._stopping = False
        self._begun = False
        self._seen_s = 0.0
        self._paused_until_s = 0.0
        self._thread = threading.Thread(target=self._run, name="lmcache-lifeline", daemon=True)

    # -- any thread -------------------------------------------------------------

    def start(self) -> None:
        """Begin to answer."""
        self._bell.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._seen_s = self._clock()
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Close every connection, with the word that tells an end in order from a death."""
        self._stopping = True
        if self._thread.ident is None:
            self._close_all()
        elif self._thread.is_alive():
            self._ring()
            self._thread.join(timeout_s)

    def disown(self) -> None:
        """In a forked child: close what would keep the parent's clients waiting for its end."""
        self._selector.close()  # no more than that: its list is the parent's too
        for visitor in self._visitors.values():
            visitor.connection.close()
            if visitor.process >= 0:
                os.close(visitor.process)
        for part in (self._listener, self._bell, self._clapper):
            part.close()

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how its thread fares; nothing before it starts and once it was told to end."""
        if not self._begun:
            return ()
        is_alive = self._thread.is_alive()
        if self._stopping:  # asked last: one that has just ended as it was told to is no dead one
            return ()
        return (
            ThreadReport(
                name=self._thread.name,
                level=ThreadLevel.CRITICAL.value,
                is_alive=is_alive,
                silent_s=max(0.0, self._clock() - self._seen_s),
                interval_s=TICKET_TIMEOUT_S,
            ),
        )

    def expect(self, session: int) -> bytes:
        """Give the ticket with which a session's client will come, once."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        with self._lock:
            self._tickets[ticket] = session
        return ticket

    def is_attached(self, session: int) -> bool:
        """Whether the session's client has come and is alive."""
        return session in self._attached

    def forget(self, session: int) -> None:
        """Close the connection of a session that is over; `on_end` is not told."""
        with self._lock:
            self._tickets = {ticket: number for ticket, number in self._tickets.items() if number != session}
            self._forgotten.append(session)
        self._attached.discard(session)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # enough rings wait already, or the thread is gone
            self._clapper.send(b"!", socket.MSG_DONTWAIT)

    # -- its own thread -----------------------------------------------------------

    def _run(self) -> None:
        self._begun = True
        try:
            while not self._stopping:
                self._round()
        finally:
            self._close_all()

    def _close_all(self) -> None:
        for visitor in list(self._visitors.values()):
            if self._stopping and visitor.session:
                _say_the_last_word(visitor.connection)
            self._close(visitor)
        self._selector.close()
        for part in (self._listener, self._bell, self._clapper):
            part.close()

    def _round(self) -> None:
        try:
            self._look()
        except Exception:  # the border of this thread: one odd connection must not hide another's death
            log.exception("the lifeline: a round failed; it goes on")
            time.sleep(_PAUSE_S)

    def _look(self) -> None:
        for key, _ in self._selector.select(TICKET_TIMEOUT_S):
            if key.fileobj is self._listener:
                self._welcome()
            elif key.fileobj is self._bell:
                self._bell.recv(4096)
            elif key.data.connection.fileno() >= 0:  # not closed by an earlier event of this round
                self._hear(key.data, by_pid=key.fd == key.data.process)
        self._tidy()

    def _tidy(self) -> None:
        with self._lock:
            forgotten, self._forgotten = self._forgotten, []
        self._seen_s = now_s = self._clock()
        for visitor in list(self._visitors.values()):
            late = not visitor.session and now_s - visitor.came_s > TICKET_TIMEOUT_S
            if late or (forgotten and visitor.session in forgotten):
                self._close(visitor)
        if self._paused_until_s and now_s >= self._paused_until_s:
            self._paused_until_s = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _welcome(self) -> None:
        try:
            connection = self._accept(self._listener)
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("the lifeline: a client could not be let in: %s", error.strerror or error)
            self._selector.unregister(self._listener)
            self._paused_until_s = self._clock() + _PAUSE_S
            return
        connection.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        pid, user = peer_of(connection)
        waiting = sum(not visitor.session for visitor in self._visitors.values())
        if user != os.getuid() or waiting >= _MOST_UNTICKETED:
            log.warning("the lifeline: process %d of user %d is not let in", pid, user)
            connection.close()
            return
        visitor = _Visitor(connection, self._clock(), pid)
        self._visitors[connection.fileno()] = visitor
        self._selector.register(connection, selectors.EVENT_READ, visitor)

    def _hear(self, visitor: _Visitor, *, by_pid: bool) -> None:
        try:
            said = b"" if by_pid else visitor.connection.recv(TICKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._end(visitor)
        elif not visitor.session:
            visitor.ticket += said
            if len(visitor.ticket) >= TICKET_BYTES:
                self._attach(visitor)

    def _attach(self, visitor: _Visitor) -> None:
        with self._lock:
            session = self._tickets.pop(visitor.ticket, 0)
            if session:
                self._attached.add(session)  # before the greeting: the client may reserve as soon as it has that
        if not session:
            self._close(visitor)
            return
        visitor.session = session
        self._watch_process(visitor)
        try:
            socket.send_fds(visitor.connection, [_GREETING], [self._arena_fd] if self._arena_fd >= 0 else [])
        except OSError:
            self._end(visitor)

    def _watch_process(self, visitor: _Visitor) -> None:
        if visitor.pid in {0, os.getpid()}:
            return  # cannot be seen from here, or is this process itself
        try:
            visitor.process = os.pidfd_open(visitor.pid)
        except OSError:
            return  # gone already, or an old kernel: the end of the connection says it too
        self._selector.register(visitor.process, selectors.EVENT_READ, visitor)

    def _end(self, visitor: _Visitor) -> None:
        known = visitor.session in self._attached
        self._close(visitor)
        if known:
            self._on_end(visitor.session)

    def _close(self, visitor: _Visitor) -> None:
        self._attached.discard(visitor.session)
        del self._visitors[visitor.connection.fileno()]
        self._selector.unregister(visitor.connection)
        visitor.connection.close()
        if visitor.process >= 0:
            self._selector.unregister(visitor.process)
            os.close(visitor.process)
            visitor.process = -1


def _say_the_last_word(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # whoever is gone, or never read its greeting, needs no word
        connection.send(LAST_WORD, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
