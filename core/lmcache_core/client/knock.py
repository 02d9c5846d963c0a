"""A bare connection to a server's address: whether anybody is there, and still is."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

from lmcache_core.client.failures import ServerCallError, ServerGoneError
from lmcache_core.wire.address import LOOPBACK, ServerAddress

_CONNECT_TIMEOUT_S = 0.05
_GREETING_BYTES = 256
_GONE = "is gone"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Knock:
    """Ends when the server dies, as a lifeline does, but before there is one. Close it.

    Costs microseconds where nobody listens, unlike a ZeroMQ socket, which would try again and again.

    Args:
        address: Of the server.

    Raises:
        ServerGoneError: Nobody listens there, or another user does.
    """

    def __init__(self, address: ServerAddress) -> None:
        path = address.path
        self._connection = open_socket(socket.AF_INET if path is None else socket.AF_UNIX)
        try:
            self._connection.settimeout(_CONNECT_TIMEOUT_S)
            self._connection.connect((LOOPBACK, address.port) if path is None else str(path))
            if path is not None:
                check_user(self._connection, str(address))
        except OSError as error:
            self._connection.close()
            raise ServerGoneError(f"no cache server answers at {address}") from error
        except ServerGoneError:
            self._connection.close()
            raise
        self._connection.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self.fd = self._connection.fileno()

    def end(self) -> str:
        """Say that the other side ``"is gone"``, dead or not; ``""`` while it is there.

        Never blocks. What the other side says is passed over.
        """
        with suppress(BlockingIOError):
            try:
                return "" if self._connection.recv(_GREETING_BYTES) else _GONE
            except ConnectionError:
                return _GONE
        return ""

    def close(self) -> None:
        """Leave."""
        self._connection.close()


def open_socket(family: int) -> socket.socket:
    """Make a stream socket. Raises a `ServerCallError` where the system has none left."""
    try:
        return socket.socket(family)
    except OSError as error:
        raise ServerCallError(f"no socket to the cache server can be made: {error.strerror}") from error


def check_user(connection: socket.socket, where: str) -> None:
    """Refuse the server of another user, who would get this one's KV, or hand out wrong KV.

    Raises:
        ServerGoneError: Says whose it is.
        OSError: It cannot be told.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, user, _group = _CREDENTIALS.unpack(raw)
    if user != os.getuid():
        raise ServerGoneError(
            f"the cache server at {where} runs as user {user} and this process as user {os.getuid()}; "
            "start the server as this user"
        )
