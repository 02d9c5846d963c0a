"""Fixtures of the Redis store's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import redis
from tests.redis_server import RedisServer

from lmcache_core import BackendContext, ChunkKey, LoadResult, StoreURL
from lmcache_core.contracts.key import FRAME_HEADER_BYTES
from lmcache_core.testing.storage import make_frame, make_key, soon
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

    def connect(url: str, **settings: object) -> RedisBackend:
        made.append(build_redis(StoreURL.parse(url), RedisSettings(**settings), BackendContext(name="RemoteBackend")))
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


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


def segmented(server: RedisServer, **options: object) -> RedisBackend:
    address = RedisAddress.of(StoreURL.parse(server.url), RedisSettings())
    return RedisBackend(address, name="RemoteBackend", value_bytes=VALUE_BYTES, **options)


def sized_key(number: int) -> ChunkKey:
    """The key of `make_key`, whose namespace says how long its chunks are, as an engine's does."""
    key = make_key(number)
    return replace(key, namespace=replace(key.namespace, payload_bytes=LENGTH - FRAME_HEADER_BYTES))


def store(backend: RedisBackend, *numbers: int) -> None:
    backend.store([(make_key(number), make_frame(number, LENGTH)) for number in numbers], deadline=soon())


def load(backend: RedisBackend, *numbers: int) -> list[LoadResult]:
    outs = [bytearray(LENGTH) for _ in numbers]
    results = backend.load_into([make_key(n) for n in numbers], [memoryview(out) for out in outs], deadline=soon())
    for number, out, result in zip(numbers, outs, results, strict=True):
        assert result is not LoadResult.HIT or out == make_frame(number, LENGTH)
    return results
