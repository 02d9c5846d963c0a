"""One connection: requests out, replies in, no wait beyond the deadline."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable

from lmcache_plugins.redis.refusal import RefusedError
from lmcache_plugins.redis.resp import MOST_DIGITS, Landed, ProtocolError, Refusal, ReplyReader, coalesce


class Wire:
    """Speaks over a connected socket. One thread at a time.

    Args:
        connected: Plain or TLS.
        keeper: Whatever must live as long as the socket.
    """

    def __init__(self, connected: socket.socket, keeper: object = None) -> None:
        self._socket = connected
        self._keeper = keeper
        self._reader = ReplyReader(self._receive_into)
        self.deadline = 0.0
        """`time.monotonic()` value that ends every wait; set it for each call."""
        self.pending = 0
        """Replies that are still to be read; the connection can be used again when there are none."""

    def send(self, pieces: Iterable[bytes | memoryview], *, replies: int) -> None:
        """Send requests.

        Args:
            pieces: In order; large ones are sent from where they are.
            replies: How many will come.

        Raises:
            TimeoutError: The deadline passed.
            OSError: The connection broke.
        """
        self.pending += replies
        for piece in coalesce(pieces):
            self._set_timeout()
            self._socket.sendall(piece)

    def reply(self) -> int | bytes | Refusal | None:
        """Read a small reply; raises like `send`, or what `ReplyReader.reply` raises."""
        reply = self._reader.reply()
        self.pending -= 1
        return reply

    def digits(self, replies: int) -> bytes | None:
        """Read integers of one digit at once; raises like `send`, or what `ReplyReader.digits` raises."""
        digits = self._reader.digits(replies)
        if digits is not None:
            self.pending -= replies
        return digits

    def bulk_into(self, prefix: bytearray, out: memoryview) -> Landed | Refusal:
        """Read a bulk into place; raises like `send`, or what `ReplyReader.bulk_into` raises."""
        landed = self._reader.bulk_into(prefix, out)
        self.pending -= 1
        return landed

    def skip(self) -> None:
        """Read a bulk and forget it; raises like `send`, or what `ReplyReader.skip` raises."""
        self._reader.skip()
        self.pending -= 1

    def close(self) -> None:
        """Let go of the socket; never waits."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _receive_into(self, out: memoryview) -> int:
        self._set_timeout()
        return self._socket.recv_into(out)

    def _set_timeout(self) -> None:
        # Anew for each system call: a server that trickles must not stretch the deadline.
        remaining_s = self.deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)


def leading_ones(wire: Wire, replies: int) -> int:
    """Read replies that are 0 or 1 and count those before the first 0; raises like `count`."""
    found: list[int] = []
    while len(found) < replies:
        part = min(MOST_DIGITS, replies - len(found))
        digits = wire.digits(part)
        found += [digit - ord("0") for digit in digits] if digits is not None else [count(wire) for _ in range(part)]
    return found.index(0) if 0 in found else replies


def count(wire: Wire) -> int:
    """Read a reply that is a number.

    Raises:
        RefusedError: It is a refusal.
        ProtocolError: It is something else.
    """
    reply = wire.reply()
    if isinstance(reply, Refusal):
        raise RefusedError(reply)
    if not isinstance(reply, int):
        raise ProtocolError("a reply that is no number")
    return reply
