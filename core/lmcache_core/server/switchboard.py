"""The connections of clients: who says what, and what is said to whom."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from lmcache_core.errors import WireError
from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.hoard import Hoard
from lmcache_core.server.listener import name_of
from lmcache_core.server.peer import Peer
from lmcache_core.server.spare import SpareFiles
from lmcache_core.server.zmtp import WELCOME, Heard, frame
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES

log = logging.getLogger(__name__)

_LOOK_AROUND_S = 0.5
"""Longest that the control thread waits before it looks after sessions."""

_READ_BYTES = 256 << 10
_MOST_WAITING_BYTES = 2 * MOST_MESSAGE_BYTES
"""Answers that one client has not taken; those that come then are dropped, as ZeroMQ drops them."""

MOST_HELD_BYTES = 16 * MOST_MESSAGE_BYTES
"""Messages half sent and answers not taken, of all connections; beyond it those end that left theirs the longest."""

_GREETING_TIMEOUT_S = 30.0
"""Longest that a connection may take to get through its greeting; ZeroMQ's own bound."""

_PAUSE_S = 0.1
"""Rest after the system let nobody in, as it does when files run out."""

_LEAST_LOG_GAP_S = 10.0


class Switchboard:
    """Speaks ZeroMQ's protocol as a ROUTER does. For the control thread alone, but for `ring` and `describe`.

    At most half of the files that the process may open are connections here.

    Args:
        listener: Listening; becomes this object's.
        spare: Lets clients in.
        tally: To count in.
        most_held_bytes: Messages half sent and answers not taken, of all connections.
        clock: Monotonic seconds.

    Raises:
        OSError: The process may open no more files.
    """

    def __init__(
        self,
        listener: socket.socket,
        spare: SpareFiles,
        tally: ServerTally,
        *,
        most_held_bytes: int = MOST_HELD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._spare = spare
        self._tally = tally
        self._clock = clock
        self._hoard = Hoard(most_held_bytes)
        self._came: deque[Heard | None] = deque()
        self._behind: deque[Peer] = deque()
        self._leaving: list[Peer] = []
        self._lost: list[int] = []
        self._by_fd: dict[int, Peer] = {}
        self._by_name: dict[bytes, Peer] = {}
        self._last_name = 0
        self._paused_until_s = 0.0
        self._log_after_s: dict[str, float] = {}
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._bell_lock = threading.Lock()
        self._epoll = select.epoll()
        try:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            self._epoll.close()
            raise
        listener.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self._epoll.register(self._bell, select.EPOLLIN)
        self._epoll.register(listener, select.EPOLLIN)

    # -- any thread -------------------------------------------------------------------

    def ring(self) -> None:
        """Make the control thread look around."""
        with self._bell_lock, contextlib.suppress(BlockingIOError):  # enough rings wait already
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def describe(self) -> dict[str, Any]:
        """Tell how it fares, as JSON values."""
        return {
            "open": len(self._by_fd),
            "held_bytes": self._hoard.total_bytes,
            "dropped_answers": self._tally.dropped_answers,
            "ended": dict(self._tally.ended_connections),
            **self._spare.describe(),
        }

    # -- the control thread -----------------------------------------------------------

    def receive(self) -> Heard | None:
        """Wait for the next message; None when it is time to look around, at the latest after half a second."""
        came = self._came
        if not came:
            while self._leaving:
                self._drop(self._leaving.pop())  # what it said before has been answered
            behind = len(self._behind)
            for descriptor, events in self._epoll.poll(0 if behind else _LOOK_AROUND_S):
                peer = self._by_fd.get(descriptor)
                if peer is not None:
                    self._attend(peer, events)
                elif descriptor == self._bell:
                    os.eventfd_read(self._bell)
                    came.append(None)
                elif descriptor == self._listener.fileno():
                    self._welcome()
            for _ in range(behind):
                peer = self._behind.popleft()
                if peer.reader.is_behind:  # and has not been ended meanwhile
                    self._take(peer, b"")
        return came.popleft() if came else None

    def say(self, to: bytes, body: bytes, lease: int = 0) -> None:
        """Send an answer; never waits: what a frozen client does not take, or one that is gone, is dropped.

        Args:
            to: Whom.
            body: Of its one frame.
            lease: Handed out in it; `next_lost` gives it where the client cannot have read that. 0 for none.
        """
        peer = self._by_name.get(to)
        if peer is not None:
            self._send(peer, frame(body), lease)
        else:
            self._lose((lease,))

    def next_lost(self) -> int:
        """Give and forget a lease that was handed out in a dropped answer; 0 for none. A ring tells of them."""
        return self._lost.pop() if self._lost else 0

    def tidy(self) -> None:
        """End connections that never got through their greeting, and let clients in again where that had to rest."""
        now_s = self._clock()
        self._spare.refill()
        if self._paused_until_s and now_s >= self._paused_until_s:
            self._paused_until_s = 0.0
            self._epoll.register(self._listener, select.EPOLLIN)
        for peer in list(self._by_fd.values()):
            if not peer.reader.is_ready and now_s - peer.came_s > _GREETING_TIMEOUT_S:
                self._end(peer, "silent", f"it did not greet within {_GREETING_TIMEOUT_S:.0f} s")

    def say_last(self, linger_s: float) -> None:
        """Let nobody in any more, and send what waits to be sent, to all at once, at most so long.

        Once the control thread has ended.
        """
        with contextlib.suppress(OSError):  # it rests already
            self._epoll.unregister(self._listener)
        self._listener.close()  # a client that comes back after the last word must find nobody, not wait in the queue
        end_s = time.monotonic() + linger_s
        for peer in self._by_fd.values():
            self._epoll.modify(peer.connection, select.EPOLLOUT if peer.waiting else 0)
        while any(peer.waiting for peer in self._by_fd.values()) and (left_s := end_s - time.monotonic()) > 0:
            for descriptor, events in self._epoll.poll(left_s):
                self._say_last(descriptor, events)

    def close(self) -> None:
        """Let go of everything. Once the control thread has ended."""
        for peer in list(self._by_fd.values()):
            self._drop(peer)
        with self._bell_lock:
            os.close(self._bell)
            self._bell = -1
        self._epoll.close()
        self._listener.close()

    def disown(self) -> None:
        """In a forked child: close what would keep the parent's connections open, and touch nothing else."""
        self._bell_lock = threading.Lock()  # another thread of the parent may have held it
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
        self._epoll.close()  # no more than that: its list is the parent's too
        for part in (self._listener, *[peer.connection for peer in self._by_fd.values()]):
            part.close()

    # -- inside -----------------------------------------------------------------------

    def _say_last(self, descriptor: int, events: int) -> None:
        peer = self._by_fd.get(descriptor)
        if peer is None:
            self._epoll.modify(descriptor, 0)  # the bell, which nobody hears any more
        elif events & ~select.EPOLLOUT:
            self._drop(peer)
        else:
            self._send_waiting(peer)
            if not peer.waiting and peer.name in self._by_name:
                self._epoll.modify(peer.connection, 0)

    def _welcome(self) -> None:
        try:
            connection = self._spare.accept(self._listener)
        except (BlockingIOError, ConnectionError):
            return  # whoever it was has gone again
        except OSError:
            self._epoll.unregister(self._listener)
            self._paused_until_s = self._clock() + _PAUSE_S
            return
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and 2 * len(self._by_fd) >= soft:
            self._turn_away(connection, f"{len(self._by_fd)} connections are half of the files that may be open")
            return
        connection.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_name += 1
        peer = Peer(b"%d" % self._last_name, connection, self._clock())
        try:
            self._epoll.register(connection, select.EPOLLIN)
        except OSError as error:
            self._turn_away(connection, error.strerror or str(error))
            return
        self._by_fd[connection.fileno()] = self._by_name[peer.name] = peer
        self._send(peer, WELCOME)

    def _turn_away(self, connection: socket.socket, why: str) -> None:
        self._tally.count_ended("turned_away")
        self._warn("turned_away", f"{name_of(connection)} is turned away: {why}")
        connection.close()

    def _attend(self, peer: Peer, events: int) -> None:
        if events & select.EPOLLOUT and peer.waiting:
            self._send_waiting(peer)
        if events & ~select.EPOLLOUT:
            self._hear(peer)

    def _hear(self, peer: Peer) -> None:
        if peer.reader.is_behind:
            return  # its turn comes
        try:
            size = peer.connection.recv_into(self._buffer)
        except BlockingIOError:
            return
        except (OSError, ValueError):  # it has been closed by an event of the same round
            size = 0
        if not size:
            self._drop(peer)
            return
        self._take(peer, bytes(self._buffer[:size]))

    def _take(self, peer: Peer, data: bytes) -> None:
        answers: list[bytes] = []
        came, reader = self._came, peer.reader
        before, fault = len(came), ""
        try:
            reader.take(data, came.append, answers)
        except WireError as error:
            fault = str(error)
        for answer in answers:
            self._send(peer, answer)
        if fault:
            self._end(peer, "malformed", fault, at_once=len(came) == before)
        elif reader.is_behind:
            self._behind.append(peer)
        if reader.held_bytes or self._hoard.total_bytes:
            self._weigh(peer, anew=len(came) > before and not peer.waiting)

    def _send(self, peer: Peer, raw: bytes, lease: int | None = None) -> None:
        """Send a message, or keep what cannot be sent yet; `lease` is None where it is no answer."""
        if peer.is_deaf:
            self._lose((lease,))
            return
        if peer.waiting:
            if len(peer.waiting) < _MOST_WAITING_BYTES:
                peer.waiting.put(raw, lease)
                self._weigh(peer)
            else:
                self._miss(peer, lease)
            return
        try:
            sent = peer.connection.send(raw, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            peer.waiting.put(raw, lease)
            self._give_up(peer, error)
            return
        if sent < len(raw):
            peer.waiting.put(raw, lease, sent=sent)
            self._epoll.modify(peer.connection, select.EPOLLIN | select.EPOLLOUT)
            self._weigh(peer)

    def _send_waiting(self, peer: Peer) -> None:
        try:
            peer.waiting.send(peer.connection)
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(peer, error)
            return
        self._weigh(peer)
        if not peer.waiting:
            self._epoll.modify(peer.connection, select.EPOLLIN)

    def _give_up(self, peer: Peer, error: OSError) -> None:
        """Say nothing more to it, but read what it said before, as that a lease is over; the end of that ends it."""
        if not isinstance(error, ConnectionError):
            self._drop(peer)
            return
        peer.is_deaf = True
        self._lose(peer.waiting.empty())
        self._weigh(peer)
        self._epoll.modify(peer.connection, select.EPOLLIN)

    def _lose(self, leases: Iterable[int | None]) -> None:
        """Count answers that no client can have read, and have what they handed out given back."""
        for lease in leases:
            if lease is not None:
                self._tally.dropped_answers += 1
                if lease:
                    self._lost.append(lease)
                    self.ring()

    def _miss(self, peer: Peer, lease: int | None) -> None:
        self._lose((lease,))
        peer.missed += 1
        self._warn(
            "missed",
            f"{name_of(peer.connection)} does not take its answers: {len(peer.waiting)} bytes of them wait, "
            f"and {peer.missed} more have been dropped",
        )

    def _weigh(self, peer: Peer, *, anew: bool = False) -> None:
        """Take in what a connection makes us keep, and end others or itself where that is too much."""
        hoard = self._hoard
        if peer.name in self._by_name:
            hoard.note(peer.name, peer.reader.held_bytes + len(peer.waiting), anew=anew)
        while (name := hoard.too_much()) is not None:
            stuck = self._by_name[name]
            self._end(
                stuck,
                "memory",
                f"messages half sent and answers not taken are {hoard.total_bytes} bytes of all connections, "
                f"and its {hoard.held_bytes(name)} bytes have been there the longest",
            )

    def _end(self, peer: Peer, kind: str, why: str, *, at_once: bool = True) -> None:
        """End a connection for a reason to count and tell; behind what it has said, where not at once."""
        self._tally.count_ended(kind)
        self._warn(kind, f"the connection of {name_of(peer.connection)} is ended: {why}")
        if at_once:
            peer.reader.is_behind = False
            self._drop(peer)
        else:
            self._leaving.append(peer)

    def _drop(self, peer: Peer) -> None:
        if self._by_name.pop(peer.name, None) is not None:
            self._hoard.note(peer.name, 0)
            del self._by_fd[peer.connection.fileno()]
            self._epoll.unregister(peer.connection)
            peer.connection.close()
            self._lose(peer.waiting.empty())

    def _warn(self, kind: str, sentence: str) -> None:
        now_s = self._clock()
        if now_s >= self._log_after_s.get(kind, 0.0):
            self._log_after_s[kind] = now_s + _LEAST_LOG_GAP_S
            log.warning("%s (at most one such line in 10 s)", sentence)
