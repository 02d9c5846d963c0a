"""Servers and clients that are closed whatever a test does."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.served import Served, socket_path
from tests.core.server.switched import HOARD_BYTES, Clock
from tests.core.server.talker import PATIENCE_S, Talker

from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.spare import SpareFiles
from lmcache_core.server.switchboard import Switchboard
from lmcache_core.server.zmtp import WELCOME


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder with a short path, as socket files need."""
    with tempfile.TemporaryDirectory(prefix="lmc") as made:
        yield Path(made)


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Served]]:
    """Start a server, here or at a given address."""
    made: list[Served] = []

    def start(address: str = "", **rig: Any) -> Served:
        served = Served(address or socket_path(folder), **rig)
        served.server.start()
        made.append(served)
        return served

    yield start
    for served in made:
        served.close()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture
def talk(context: zmq.Context[Any]) -> Iterator[Callable[[Served], Talker]]:
    """Connect one more client."""
    made: list[Talker] = []

    def connect(served: Served) -> Talker:
        made.append(Talker(served.server.address, context))
        return made[-1]

    yield connect
    for talker in made:
        talker.close()


@pytest.fixture
def worker(served: Served, talk: Callable[[Served], Talker]) -> Talker:
    """A client that has registered and is on the lifeline."""
    return talk(served).enter()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tally() -> ServerTally:
    return ServerTally()


@pytest.fixture
def board(folder: Path, clock: Clock, tally: ServerTally) -> Iterator[Switchboard]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen()
    spare = SpareFiles("here", clock)
    board = Switchboard(listener, spare, tally, most_held_bytes=HOARD_BYTES, clock=clock)
    yield board
    board.close()
    spare.close()


@pytest.fixture
def come(folder: Path, board: Switchboard) -> Iterator[Callable[[], socket.socket]]:
    """Connect a client that says nothing yet."""
    made: list[socket.socket] = []

    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(str(folder / "s"))
        made.append(client)
        assert board.receive() is None
        assert client.recv(256) == WELCOME
        return client

    yield connect
    for client in made:
        client.close()
