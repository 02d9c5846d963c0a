"""What can go wrong between a client and a server: records that `FaultProxy` puts in force."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

_GROWING_COMMANDS = (
    "APPEND", "GETSET", "HMSET", "HSET", "HSETNX", "INCR", "INCRBY", "LPUSH", "MSET", "MSETNX", "PSETEX", "RPUSH",
    "SADD", "SET", "SETEX", "SETNX", "SETRANGE", "XADD", "ZADD",
)  # fmt: skip
"""Those that a server out of memory refuses (flag ``denyoom`` of COMMAND INFO); the most usual."""

_WRITING_COMMANDS = (
    *_GROWING_COMMANDS, "DEL", "EXPIRE", "EXPIREAT", "FLUSHALL", "FLUSHDB", "GETDEL", "HDEL", "PERSIST", "PEXPIRE",
    "PEXPIREAT", "RENAME", "SREM", "UNLINK", "ZREM",
)  # fmt: skip
"""Those that a replica refuses (flag ``write`` of COMMAND INFO); the most usual."""


class Way(enum.Flag):
    """Which bytes a fault is about."""

    REQUESTS = enum.auto()
    """From the client to the server."""
    REPLIES = enum.auto()
    """From the server to the client."""
    BOTH = REQUESTS | REPLIES


@dataclass(frozen=True, slots=True)
class Latency:
    """Everything arrives late, in order.

    Attributes:
        delay_s: Seconds, at least 0.
        jitter_s: Up to so many more, drawn anew for each piece.
        way: Which bytes.
    """

    delay_s: float
    jitter_s: float = 0.0
    way: Way = field(default=Way.REPLIES, kw_only=True)

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        _at_least(0, delay_s=self.delay_s, jitter_s=self.jitter_s)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server is gone: connections are refused, and those that are open are reset."""


@dataclass(frozen=True, slots=True)
class Blackhole:
    """The network is gone: connecting gets no answer, and connections that are open fall silent for good.

    As `HalfOpen`, but a new connection hangs while it is made. Linux only: elsewhere it is made.
    """


@dataclass(frozen=True, slots=True)
class Hang:
    """The server is stuck: it accepts connections and requests, and its replies stop.

    What was held back arrives when the fault is cleared.

    Attributes:
        after_bytes: Passed first, counted per connection from when the fault came or the connection was made.
        way: Which bytes stop; with ``Way.BOTH`` the server gets no request either.
    """

    after_bytes: int = 0
    way: Way = field(default=Way.REPLIES, kw_only=True)

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        _at_least(0, after_bytes=self.after_bytes)


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """The peer vanished without a word: no byte and no end of a connection passes, either way.

    Connections of its time stay dead when it is cleared, as behind a router that forgot them; new ones work.
    """


@dataclass(frozen=True, slots=True)
class Drip:
    """Bytes trickle.

    Attributes:
        bytes_per_s: Of each connection, above 0.
        way: Which bytes.
    """

    bytes_per_s: float
    way: Way = field(default=Way.REPLIES, kw_only=True)

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        if self.bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be above 0, got {self.bytes_per_s}")


@dataclass(frozen=True, slots=True)
class Cut:
    """A connection ends in the middle of a reply.

    Attributes:
        after_bytes: Passed first, counted per connection from when the fault came or the connection was made.
        reset: End with a reset, not in order.
        way: Which bytes are counted.
    """

    after_bytes: int
    reset: bool = field(default=False, kw_only=True)
    way: Way = field(default=Way.REPLIES, kw_only=True)

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        _at_least(0, after_bytes=self.after_bytes)


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes change on their way: one at a place, or one in every so many at places that the seed decides.

    Attributes:
        offset_bytes: The place, counted per connection from when the fault came or the connection was made;
            -1 for none.
        every_bytes: One byte in each run of so many; 0 for none.
        way: Which bytes.
    """

    offset_bytes: int = -1
    every_bytes: int = 0
    way: Way = field(default=Way.REPLIES, kw_only=True)

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        _at_least(-1, offset_bytes=self.offset_bytes)
        _at_least(0, every_bytes=self.every_bytes)
        if (self.offset_bytes < 0) == (self.every_bytes == 0):
            raise ValueError("give either offset_bytes or every_bytes")


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A Redis or Valkey server answers with an error; the request does not reach it.

    Only over plain RESP: bytes of another protocol, TLS included, pass as they are.

    Attributes:
        text: Code and sentence, without the leading ``-``.
        commands: Which are answered so, in any case; empty for all.
    """

    text: str
    commands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the caller's line."""
        if not self.text or self.text.startswith("-") or not self.text.isprintable():
            raise ValueError(f"text must be one line that does not start with '-', got {self.text!r}")
        object.__setattr__(self, "commands", tuple(command.upper() for command in self.commands))

    def answers(self, command: bytes) -> bool:
        """Tell whether a command, in capitals, is answered so."""
        return not self.commands or command.decode("ascii", "replace") in self.commands

    @classmethod
    def oom(cls, commands: tuple[str, ...] = _GROWING_COMMANDS) -> ErrorReply:
        """Make a server that is full; by default for commands that need memory."""
        return cls("OOM command not allowed when used memory > 'maxmemory'.", commands)

    @classmethod
    def loading(cls, commands: tuple[str, ...] = ()) -> ErrorReply:
        """Make a server that still reads its data."""
        return cls("LOADING Redis is loading the dataset in memory", commands)

    @classmethod
    def readonly(cls, commands: tuple[str, ...] = _WRITING_COMMANDS) -> ErrorReply:
        """Make a replica, as after a fail-over; by default for commands that write."""
        return cls("READONLY You can't write against a read only replica.", commands)

    @classmethod
    def noauth(cls, commands: tuple[str, ...] = ()) -> ErrorReply:
        """Make a server that wants a password."""
        return cls("NOAUTH Authentication required.", commands)


NetworkFault: TypeAlias = Latency | Refuse | Blackhole | Hang | HalfOpen | Drip | Cut | Corrupt | ErrorReply
"""Any of them."""


def _at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
