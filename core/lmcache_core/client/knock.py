"""A bare connection to a server's address: whether anybody is there, and still is."""

from __future__ import annotations

import socket
from contextlib import suppress

from lmcache_core.client.failures import ServerGoneError
from lmcache_core.wire.address import LOOPBACK, ServerAddress

_CONNECT_TIMEOUT_S = 0.05
_GREETING_BYTES = 256


class Knock:
    """Ends when the server dies, as a lifeline does, but before there is one. Close it.

    Costs microseconds where nobody listens, unlike a ZeroMQ socket, which would try again and again.

    Args:
        address: Of the server.

    Raises:
        ServerGoneError: Nobody listens there.
    """

    def __init__(self, address: ServerAddress) -> None:
        path = address.path
        self._connection = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        try:
            self._connection.settimeout(_CONNECT_TIMEOUT_S)
            self._connection.connect((LOOPBACK, address.port) if path is None else str(path))
        except OSError as error:
            self._connection.close()
            raise ServerGoneError(f"no cache server answers at {address}") from error
        self._connection.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self.fd = self._connection.fileno()

    def has_ended(self) -> bool:
        """Whether the other side is dead. Never blocks; what the other side says is passed over."""
        with suppress(BlockingIOError):
            try:
                return self._connection.recv(_GREETING_BYTES) == b""
            except ConnectionError:
                return True
        return False

    def close(self) -> None:
        """Leave."""
        self._connection.close()
