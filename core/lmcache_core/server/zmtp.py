"""As much of ZeroMQ's protocol, ZMTP 3.0, as the server of DEALER sockets needs.

libzmq ends the whole process when a client comes and no file can be opened. This process may be an inference
engine's, so that the listening side is our own; clients use libzmq all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lmcache_core.errors import WireError
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES

_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)
_NULL = b"NULL".ljust(20, b"\0")
_MAJOR = 3
_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_HEAD, _LONG_HEAD = 2, 9
_MOST_SHORT = 255
_PING_TTL_BYTES = 2
_MOST_PING_CONTEXT = 16

_MOST_AT_ONCE = 64
"""Frames of one connection before others have their turn."""

_MOST_COMMAND_BYTES = 4096

_CUT_OFF_BYTES = 4 * MOST_MESSAGE_BYTES
"""A connection that sends more ends; what lies between is refused with a sentence."""


class Heard(NamedTuple):
    """One message.

    Attributes:
        sender: Whose; answers go there.
        body: Of its first frame.
        frames: How many it has.
    """

    sender: bytes
    body: bytes
    frames: int


def frame(body: bytes, flags: int = 0) -> bytes:
    """Give a message, or a command, as it is sent."""
    size = len(body)
    if size <= _MOST_SHORT:
        return bytes((flags, size)) + body
    return bytes((flags | _LONG,)) + size.to_bytes(8, "big") + body


def _name(name: bytes) -> bytes:
    return bytes((len(name),)) + name


_SOCKET_TYPE = b"ROUTER"
WELCOME = (
    b"\xff\0\0\0\0\0\0\0\x01\x7f"
    + bytes((_MAJOR, 0))
    + _NULL
    + bytes(32)
    + frame(_name(b"READY") + _name(b"Socket-Type") + len(_SOCKET_TYPE).to_bytes(4, "big") + _SOCKET_TYPE, _COMMAND)
)
"""What is said to whoever comes: the greeting, and that we are ready."""


class Reader:
    """Takes what one connection sends apart. Holds no more than the message under way.

    Args:
        sender: Whose connection.

    Attributes:
        is_ready: Whether the other side is through its greeting.
        is_behind: Whether it may have said more than `take` gave; ask again with no bytes.
    """

    __slots__ = ("_body", "_frames", "_greeted", "_raw", "_sender", "is_behind", "is_ready")

    def __init__(self, sender: bytes) -> None:
        self.is_ready = False
        self.is_behind = False
        self._sender = sender
        self._greeted = False
        self._raw = bytearray()
        self._frames = 0
        self._body = b""

    @property
    def held_bytes(self) -> int:
        """What has come of messages that are not whole, or not given yet."""
        return len(self._raw) + len(self._body)

    def take(self, data: bytes, hear: Callable[[Heard], object], answers: list[bytes]) -> None:
        """Give the messages that are whole with these bytes.

        Args:
            data: What has come; none where only more of what came before is wanted.
            hear: Gets each message.
            answers: Gets what the protocol itself answers.

        Raises:
            WireError: The other side does not speak the protocol, or sends more than anybody reads; what it said
                before that has been given.
        """
        size = len(data)
        if size >= _SHORT_HEAD and not data[0] and size == _SHORT_HEAD + data[1] and self._is_between():
            hear(Heard(self._sender, data[_SHORT_HEAD:], 1))  # one short message, as most are
            return
        self._raw += data
        if not self._greeted and not self._greet():
            return
        self.is_behind = False
        for _ in range(_MOST_AT_ONCE):
            found = self._next_frame()
            if found is None:
                return
            self._hear(*found, hear, answers)
        self.is_behind = True

    def _is_between(self) -> bool:
        return self.is_ready and not self._raw and not self._frames

    def _greet(self) -> bool:
        raw = self._raw
        if raw[0] != WELCOME[0]:
            raise WireError("what came is no greeting of ZeroMQ")
        if len(raw) < _GREETING_BYTES:
            return False
        if not raw[9] & 1 or raw[10] < _MAJOR or raw[_MECHANISM] != _NULL:
            raise WireError("the other side speaks an older protocol of ZeroMQ, or one with a password")
        del raw[:_GREETING_BYTES]
        self._greeted = True
        return True

    def _next_frame(self) -> tuple[int, bytes] | None:
        raw = self._raw
        if len(raw) < _SHORT_HEAD:
            return None
        flags, size, head = raw[0], raw[1], _SHORT_HEAD
        if flags & _LONG:
            if len(raw) < _LONG_HEAD:
                return None
            size, head = int.from_bytes(raw[1:_LONG_HEAD], "big"), _LONG_HEAD
        most = _CUT_OFF_BYTES if self.is_ready and not flags & _COMMAND else _MOST_COMMAND_BYTES
        if flags > (_MORE | _LONG | _COMMAND) or size > most:
            raise WireError(f"a frame of {size} bytes with flags {flags} came")
        if len(raw) < head + size:
            return None
        body = bytes(raw[head : head + size])
        del raw[: head + size]
        return flags, body

    def _hear(self, flags: int, body: bytes, hear: Callable[[Heard], object], answers: list[bytes]) -> None:
        if flags & _COMMAND:
            self._obey(body, answers)
        elif not self.is_ready:
            raise WireError("a message came before the other side was ready")
        else:
            self._frames += 1
            self._body = self._body if self._frames > 1 else body
            if not flags & _MORE:
                hear(Heard(self._sender, self._body, self._frames))
                self._frames, self._body = 0, b""

    def _obey(self, body: bytes, answers: list[bytes]) -> None:
        name, rest = body[1 : 1 + body[0]] if body else b"", body[1 + body[0] :] if body else b""
        if name == b"READY":
            self.is_ready = True
        elif name == b"PING":
            context = rest[_PING_TTL_BYTES : _PING_TTL_BYTES + _MOST_PING_CONTEXT]
            answers.append(frame(_name(b"PONG") + context, _COMMAND))
        elif name == b"ERROR":
            raise WireError("the other side refused the connection")
