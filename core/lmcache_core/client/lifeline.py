"""The Unix socket whose end says that the other side is dead, and which hands out the arena."""

from __future__ import annotations

import os
import select
import socket

from lmcache_core.client.failures import ServerCallError, ServerConfusedError, ServerGoneError
from lmcache_core.client.knock import check_user, open_socket
from lmcache_core.wire.farewell import LAST_WORD

ENDED = "has ended"
"""What a server has done that said so before its lifeline ended."""

DIED = "died"
"""What one did whose lifeline ended without a word."""

_GREETING_BYTES = 1
_SHORTEST_TIMEOUT_S = 0.001  # 0 would mean not to wait at all


class _Held(socket.socket):
    """Is closed with its last reference, without the warning that a forgotten socket is worth."""

    def __del__(self) -> None:
        self.close()


class Lifeline:
    """An open connection to the server's lifeline.

    Closed when the last reference goes, never earlier: the server takes an end of it as leave to reuse
    every block that this client was filling or reading, so whoever copies holds it.

    Args:
        connection: Connected and through the greeting.
    """

    __slots__ = ("_connection", "fd")

    def __init__(self, connection: socket.socket) -> None:
        self.fd = connection.fileno()
        self._connection = _Held(connection.family, connection.type, connection.proto, connection.detach())
        self._connection.setblocking(False)  # noqa: FBT003 - the standard library's own switch

    def end(self) -> str:
        """Say how the other side ended: `ENDED` or `DIED`; ``""`` while it lives.

        Never blocks. The word stays where it is, for whoever asks next.
        """
        poll = select.poll()  # one of its own: two threads cannot use the same at once
        poll.register(self.fd, select.POLLIN)
        if not poll.poll(0):
            return ""
        try:
            word = self._connection.recv(len(LAST_WORD), socket.MSG_PEEK)
        except OSError:
            word = b""
        return ENDED if word == LAST_WORD else DIED

    def let_go(self) -> None:
        """Close it; by hand only in a forked child, whose copy would keep it open when the parent dies."""
        self.fd = -1
        self._connection.close()


def connect_lifeline(path: str, ticket: bytes, *, timeout_s: float) -> tuple[Lifeline, int]:
    """Connect, show the ticket, and take what the server hands out.

    Returns:
        The lifeline, and the file descriptor of the arena for the caller to close; -1 for no arena.

    Raises:
        ServerGoneError: Nobody answers there in time.
        ServerConfusedError: The other side does not speak as a lifeline does.
    """
    connection = open_socket(socket.AF_UNIX)
    try:
        connection.settimeout(max(timeout_s, _SHORTEST_TIMEOUT_S))
        connection.connect(path)
        check_user(connection, path)
        connection.sendall(ticket)
        arena_fd = _greeting(connection, path)
    except OSError as error:
        connection.close()
        raise ServerGoneError(f"the cache server's lifeline at {path} cannot be reached: {error}") from error
    except ServerCallError:
        connection.close()
        raise
    return Lifeline(connection), arena_fd


def _greeting(connection: socket.socket, path: str) -> int:
    greeting, descriptors, _, _ = socket.recv_fds(connection, _GREETING_BYTES, 2)
    for descriptor in descriptors:  # `recv_fds` takes flags and passes none on
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the standard library's own switch
    if len(greeting) == _GREETING_BYTES and len(descriptors) <= 1:
        return descriptors[0] if descriptors else -1
    for descriptor in descriptors:
        os.close(descriptor)
    if not greeting:
        raise ServerGoneError(f"the cache server ended the connection at {path}")
    raise ServerConfusedError(f"the cache server handed out {len(descriptors)} arenas at {path}")
