"""A listening port that can be closed, or made to answer nobody, and stays ours meanwhile."""

from __future__ import annotations

import contextlib
import socket

_BACKLOG = 128
_FILLERS = 8
"""More connections than a queue of length 0 takes on any kernel, so that the next one gets no answer."""


class Gate:
    """The proxy's port.

    A second socket is bound to it and never listens, so that nobody else gets it while it is closed.

    Args:
        listen: Host and port, 0 for a free one.
    """

    def __init__(self, listen: tuple[str, int]) -> None:
        self.host, self.port = listen
        self._holder: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._full = False
        self._fillers: list[socket.socket] = []

    @property
    def listener(self) -> socket.socket:
        """The socket to accept from.

        Raises:
            OSError: It is closed.
        """
        if self._listener is None:
            raise OSError("the fault proxy does not listen now")
        return self._listener

    def bind(self) -> None:
        """Take the port.

        Raises:
            OSError: It is taken, or no address of this machine.
        """
        self._holder = self._make_socket()
        self.port = self._holder.getsockname()[1]

    def set(self, *, listening: bool, full: bool) -> None:
        """Accept connections; or refuse them; or, while it is `full`, leave them without an answer."""
        if listening == (self._listener is not None) and full == self._full:
            return
        self._close_listener()
        if not listening:
            return
        self._listener = self._make_socket()
        self._listener.settimeout(0.0)
        self._listener.listen(0 if full else _BACKLOG)
        self._full = full
        if full:
            self._fill()

    def close(self) -> None:
        """Give the port back."""
        self._close_listener()
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def _fill(self) -> None:
        for _ in range(_FILLERS):
            filler = socket.socket(self.listener.family)
            filler.settimeout(0.0)
            with contextlib.suppress(BlockingIOError):
                filler.connect(self.listener.getsockname())
            self._fillers.append(filler)

    def _close_listener(self) -> None:
        for one in (*self._fillers, *([self._listener] if self._listener is not None else [])):
            one.close()
        self._fillers.clear()
        self._listener, self._full = None, False

    def _make_socket(self) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._holder is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind(address)
            # The holder shares only once it has the port alone: a second proxy on it is to fail.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        except BaseException:
            made.close()
            raise
        return made
