"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.redis_server import RedisServer


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A plain server of its own, empty, on loopback and a unix socket."""
    with RedisServer() as server:
        yield server
