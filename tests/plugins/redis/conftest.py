"""Fixtures of the Redis store's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.redis_server import RedisServer

from lmcache_core import BackendContext, StoreURL
from lmcache_plugins.redis.address import RedisAddress
from lmcache_plugins.redis.backend import RedisBackend
from lmcache_plugins.redis.hooks import build_redis
from lmcache_plugins.redis.settings import RedisSettings

LENGTH = 10_000
VALUE_BYTES = 1024 + 8
"""Small, so that 10,000 bytes are 10 segments."""

MakeBackend = Callable[..., RedisBackend]


@pytest.fixture
def connect() -> Iterator[MakeBackend]:
    """Build a store as the core does; closed after the test."""
    made = []

    def connect(url: str, frame_bytes: int = LENGTH, **settings: object) -> RedisBackend:
        context = BackendContext(name="RemoteBackend", frame_bytes=frame_bytes)
        made.append(build_redis(StoreURL.parse(url), RedisSettings(**settings), context))
        return made[-1]

    yield connect
    for backend in made:
        backend.close()


@pytest.fixture
def backend(redis_server: RedisServer) -> Iterator[RedisBackend]:
    """A store that cuts chunks of 10,000 bytes into 10 segments."""
    backend = segmented(redis_server)
    yield backend
    backend.close()


def segmented(server: RedisServer, **options: object) -> RedisBackend:
    address = RedisAddress.of(StoreURL.parse(server.url), RedisSettings())
    return RedisBackend(address, name="RemoteBackend", frame_bytes=LENGTH, value_bytes=VALUE_BYTES, **options)
