"""The sockets of one session, while the session ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from lmcache_core.client.sockets import SocketPool


class Living:
    """A lifeline that has not ended."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC)

    def end(self) -> str:
        return ""


@pytest.fixture
def lifeline() -> Iterator[Living]:
    one = Living()
    yield one
    os.close(one.fd)


def test_a_socket_made_while_the_session_ends_has_its_lifeline(lifeline: Living) -> None:
    """Without it, a call on the socket would wait for a dead server until its deadline."""
    pool = SocketPool("ipc://@nobody", lifeline=lifeline)
    make, closing = pool._context.socket, threading.Thread(target=pool.close)

    def socket(kind: int) -> object:
        closing.start()
        closing.join(0.2)
        return make(kind)

    pool._context.socket = socket  # type: ignore[method-assign, assignment]
    made = pool.take()
    closing.join()
    pool.give(made)

    assert made._lifeline is lifeline
