"""A ZeroMQ context that garbage collection can end."""

from __future__ import annotations

import sys

import zmq


class SocketContext(zmq.Context["zmq.Socket[bytes]"]):
    """Closes its sockets when the collector of garbage ends it; else that thread would wait for them for ever.

    pyzmq's own context does so by weak references, which the collector clears first where it finds a
    context and an open socket of it together, as with a lookup that outlived its session.

    Attributes:
        opened: Sockets that were made and not closed. Whoever makes or closes one keeps it right.
    """

    opened: set[zmq.Socket[bytes]]

    def __init__(self) -> None:
        self.opened = set()
        super().__init__()

    def __del__(self) -> None:
        if self.closed or sys.is_finalizing():
            return
        for socket in self.opened:
            socket.close(0)
        self.term()
