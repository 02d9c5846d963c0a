"""A switchboard without a server, and clients of it that do as they are told."""

from __future__ import annotations

import os
import socket

from tests.core.server.talker import READY

from lmcache_core.server.switchboard import Switchboard
from lmcache_core.server.zmtp import WELCOME, Heard, frame
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES

HOARD_BYTES = 8 * MOST_MESSAGE_BYTES
ME = f"process {os.getpid()} of user {os.getuid()}"


class Clock:
    """Goes on when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def hear(board: Switchboard) -> Heard:
    for _ in range(1000):
        heard = board.receive()
        if heard is not None:
            return heard
    raise AssertionError("nothing was heard")


def enter(board: Switchboard, client: socket.socket) -> bytes:
    """Get through the greeting; give the client's name."""
    client.sendall(WELCOME[:64] + READY + frame(b"hello"))
    heard = hear(board)
    assert heard.body == b"hello"
    return heard.sender
