"""Servers and clients that are closed whatever a test does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.served import Served, socket_path
from tests.core.server.talker import Talker


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
