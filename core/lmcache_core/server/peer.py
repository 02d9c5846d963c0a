"""One connection of a client."""

from __future__ import annotations

import socket

from lmcache_core.server.outbox import Outbox
from lmcache_core.server.zmtp import Reader


class Peer:
    """What a switchboard knows of a connection. For the control thread alone.

    Attributes:
        name: Where answers go.
        connection: Never waits.
        came_s: When it was let in.
        reader: Takes apart what it sends.
        waiting: What it has not taken.
        missed: Answers that were dropped as too much waited.
        is_deaf: Whether nothing more can be said to it.
    """

    __slots__ = ("came_s", "connection", "is_deaf", "missed", "name", "reader", "waiting")

    def __init__(self, name: bytes, connection: socket.socket, came_s: float) -> None:
        self.name = name
        self.connection = connection
        self.came_s = came_s
        self.reader = Reader(name)
        self.waiting = Outbox()
        self.missed = 0
        self.is_deaf = False
