"""A server that says back what it hears, and clients of a proxy before it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from lmcache_core.testing import FaultProxy

PATIENCE_S = 30.0


class EchoServer:
    """Counts the connections and bytes that reach it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.heard = bytearray()
        self.ended = threading.Event()
        """A connection ended."""

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                self._threads.append(threading.Thread(target=self._echo, args=(client,), daemon=True))
                self._threads[-1].start()

    def _echo(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while data := client.recv(65536):
                self.heard += data
                client.sendall(data)
        self.ended.set()

    def stop(self) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.stop()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[FaultProxy]:
    with FaultProxy(to=echo.address, seed=7) as made:
        yield made


@pytest.fixture
def connect() -> Iterator[Callable[..., socket.socket]]:
    """Connects to a proxy; everything is closed in the end."""
    with contextlib.ExitStack() as stack:

        def make(to: FaultProxy, timeout_s: float = PATIENCE_S) -> socket.socket:
            return stack.enter_context(socket.create_connection((to.host, to.port), timeout=timeout_s))

        yield make
