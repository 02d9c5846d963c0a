"""Sockets to one server, one for each call under way, so that no call waits for another."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import zmq

from lmcache_core.client.failures import (
    RequestTooLongError,
    ServerCallError,
    ServerConfusedError,
    ServerGoneError,
    ServerLateError,
)
from lmcache_core.client.socket_context import SocketContext
from lmcache_core.errors import WireError
from lmcache_core.wire.codec import Encoder, answers
from lmcache_core.wire.messages import (
    MOST_MESSAGE_BYTES,
    Abandon,
    Answer,
    Forsake,
    Found,
    Lent,
    Message,
    Reserved,
    Return,
)

_PATIENCE_MS = 20
"""A call first just waits for its answer, which costs least; then it watches the lifeline as well."""

_RECONNECT_MS = 50
_CONNECT_TIMEOUT_MS = 1000
_FAREWELL_MS = 200
"""Longest that closing waits for the last message to leave."""

_OVER = "the session with the cache server is over"

_FILES_NEEDED = 16
"""A ZeroMQ context opens about six, and ends the whole process where it gets none."""


class Watch(Protocol):
    """A connection that ends when the server dies: a `Lifeline`, or a `Knock` before there is one."""

    @property
    def fd(self) -> int:
        """Readable when there is something to ask about."""

    def end(self) -> str:
        """Say how the server ended, as ``"died"``; ``""`` while it lives. Never blocks."""


class CallSocket:
    """One DEALER socket. One thread at a time.

    Args:
        raw: Connected, or about to be.
        lifeline: Ends a wait; None while there is none.
    """

    __slots__ = ("_decode", "_encode", "_lifeline", "_poller", "owed", "raw", "session")

    def __init__(self, raw: zmq.Socket[bytes], lifeline: Watch | None, session: int) -> None:
        self.raw = raw
        self.session = session
        self.owed: set[int] = set()
        """Calls that the server has not answered yet."""
        self._lifeline = lifeline
        self._poller: zmq.Poller | None = None
        self._encode = Encoder().encode
        self._decode = answers().decode

    def send(self, message: Message, call: int = 0) -> None:
        """Send; never waits. `call` is the number of the answer to come, 0 for none.

        Raises:
            RequestTooLongError: The message is longer than any server reads.
            ServerGoneError: The socket was closed.
        """
        try:
            frame = self._encode(message)
        except WireError as error:
            raise RequestTooLongError(f"{error}; ask for fewer tokens at once") from error
        try:
            self.raw.send(frame, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise ServerGoneError(f"the cache server cannot be reached: {error}") from error
        if call:
            self.owed.add(call)

    def receive(self, call: int, deadline: float) -> Answer:
        """Wait for the answer to a call.

        Raises:
            ServerLateError: None came in time; it is thrown away when it comes.
            ServerGoneError: The server ended.
            ServerConfusedError: What came is no message.
        """
        quick = deadline - time.monotonic() > _PATIENCE_MS / 1000
        while True:
            try:
                frame = self.raw.recv(0 if quick else zmq.NOBLOCK)
            except zmq.Again:
                quick = False
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise ServerLateError("the cache server gave no answer in time") from None
                self.has_input(left_s)
                continue
            except zmq.ZMQError as error:
                raise ServerGoneError(f"the cache server cannot be reached: {error}") from error
            answer = self._take(frame, call)
            if answer is not None:
                return answer

    def peek(self, call: int) -> Answer | None:
        """Give the answer to a call if it is there."""
        with suppress(zmq.ZMQError):
            while True:
                answer = self._take(self.raw.recv(zmq.NOBLOCK), call)
                if answer is not None:
                    return answer
        return None

    def has_input(self, timeout_s: float) -> bool:
        """Wait until something has come, at most so long. Raises ServerGoneError when the server ends first."""
        if self._poller is None:
            self._poller = zmq.Poller()
            self._poller.register(self.raw, zmq.POLLIN)
            if self._lifeline is not None:
                self._poller.register(self._lifeline.fd, zmq.POLLIN)
        ready = [what for what, _ in self._poller.poll(math.ceil(timeout_s * 1000))]
        if self.raw not in ready and ready and self._lifeline is not None and (end := self._lifeline.end()):
            raise ServerGoneError(f"the cache server {end}")
        return self.raw in ready

    def drain(self) -> None:
        """Throw away answers that nobody waits for any more, and give back what they lend."""
        with suppress(zmq.ZMQError, ServerConfusedError):
            while self.owed:
                self._take(self.raw.recv(zmq.NOBLOCK), 0)

    def _take(self, frame: bytes, call: int) -> Answer | None:
        try:
            answer = self._decode(frame)
        except WireError as error:
            raise ServerConfusedError(f"the cache server does not speak this protocol: {error}") from error
        if answer.call == call:
            self.owed.discard(call)
            return answer
        if answer.call in self.owed:
            self.owed.discard(answer.call)
            self._forgo(answer)
        return None

    def _forgo(self, answer: Answer) -> None:
        """Give back what a late answer lends."""
        with suppress(ServerGoneError):
            if isinstance(answer, Reserved) and answer.lease:
                self.send(Abandon(self.session, answer.lease))
            elif isinstance(answer, Lent) and answer.lease:
                self.send(Return(self.session, answer.lease, 0))
            elif isinstance(answer, Found) and answer.chunks:
                self.send(Forsake(self.session, answer.call))


class SocketPool:
    """Makes, lends and closes the sockets of one session. Any thread.

    Args:
        address: A ZeroMQ address.
        session: Number of the session; 0 before there is one.
        lifeline: Of the session; None for none.

    Raises:
        ServerCallError: The process is out of files.

    Attributes:
        session: Number of the session.
    """

    def __init__(self, address: str, *, session: int = 0, lifeline: Watch | None = None) -> None:
        self._address = address
        self.session = session
        self._lifeline = lifeline
        _check_files()
        self._context = SocketContext()
        self._idle: deque[CallSocket] = deque()
        self._inherited: deque[CallSocket] = deque()
        # The collector of garbage may come in between, and use the pool for a lost lease: reentrant.
        self._lock = threading.RLock()
        self._closed = False
        self._why_closed = ""

    def call(self, message: Message, call: int, deadline: float) -> Answer:
        """Send a request and wait for its answer. Raises a `ServerCallError`."""
        socket = self.take()
        try:
            socket.send(message, call)
            return socket.receive(call, deadline)
        finally:
            self.give(socket)

    def tell(self, message: Message) -> None:
        """Send a message that has no answer; a server that is gone does not need it."""
        with suppress(ServerGoneError), self.lend() as socket:
            socket.send(message)

    @contextmanager
    def lend(self) -> Iterator[CallSocket]:
        """Lend a socket for the length of a block. Raises ServerGoneError once the pool is closed."""
        socket = self.take()
        try:
            yield socket
        finally:
            self.give(socket)

    @property
    def is_closed(self) -> bool:
        """Whether its sockets must not be touched any more, which in a forked child are the parent's."""
        return self._closed

    def end(self) -> str:
        """Say why no answer can come any more, one sentence; ``""`` while one can. Never blocks."""
        lifeline = self._lifeline
        if self._closed or lifeline is None:
            return self._why_closed
        end = lifeline.end()
        return f"the cache server {end}" if end else ""

    def take(self) -> CallSocket:
        """Lend a socket. Raises ServerGoneError once the pool is closed, a `ServerCallError` where there is none."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give(self, socket: CallSocket) -> None:
        """Take a socket back; one with answers still to come is used last."""
        if socket.owed:
            self._idle.appendleft(socket)
        else:
            self._idle.append(socket)
        if self._closed:
            self._close_idle()

    def drain(self) -> None:
        """Throw away what came too late on sockets that are not in use."""
        for _ in range(len(self._idle)):  # once around: each keeps its place, and none is looked at twice
            try:
                socket = self._idle.popleft()
            except IndexError:
                break
            socket.drain()
            self._idle.append(socket)
        if self._closed:
            self._close_idle()

    def close(self, farewell: Message | None = None) -> None:
        """Close every socket, those in use when they come back; tell the server if there is something to tell."""
        if farewell is not None:
            with suppress(ServerCallError):  # the end of the lifeline says the same
                self.tell(farewell)
        self._why_closed = self.end() or _OVER
        with self._lock:  # else a socket just being made would have no lifeline, and wait for a dead server
            self._closed, self._lifeline = True, None
        self._close_idle(_FAREWELL_MS if farewell is not None else 0)

    def disown(self) -> None:
        """In a forked child: never touch the parent's sockets again."""
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._closed, self._why_closed = True, _OVER
        self._inherited, self._idle = self._idle, deque()

    def _make(self) -> CallSocket:
        with self._lock:
            if self._closed:
                raise ServerGoneError(self._why_closed)
            if not self._context.opened:
                _check_files()
            try:
                raw = self._context.socket(zmq.DEALER)
            except zmq.ZMQError as error:
                raise ServerCallError(f"no socket to the cache server can be made: {error}") from error
            self._context.opened.add(raw)
            lifeline = self._lifeline
        raw.linger = 0
        raw.sndhwm = 0  # a message that gives something back is never dropped
        raw.maxmsgsize = MOST_MESSAGE_BYTES
        raw.rcvtimeo = _PATIENCE_MS
        raw.reconnect_ivl = _RECONNECT_MS
        raw.connect_timeout = _CONNECT_TIMEOUT_MS
        raw.connect(self._address)
        return CallSocket(raw, lifeline, self.session)

    def _close_idle(self, linger_ms: int = 0) -> None:
        while True:
            try:
                socket = self._idle.pop()
            except IndexError:
                break
            socket.raw.close(linger_ms)
            with self._lock:
                self._context.opened.discard(socket.raw)
        with self._lock:
            if not self._context.opened and not self._context.closed:
                self._context.term()


def _check_files() -> None:
    """Raise a ServerCallError where this process may open too few files for a ZeroMQ context."""
    opened: list[int] = []
    try:
        while len(opened) < _FILES_NEEDED:
            opened.append(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError as error:
        raise ServerCallError(f"no socket to the cache server can be made: {error.strerror}") from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
