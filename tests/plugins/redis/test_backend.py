"""The Redis store against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from tests.plugins.redis.conftest import LENGTH, VALUE_BYTES, MakeBackend, load, segmented, sized_key, store
from tests.redis_server import RedisServer

from lmcache_core import LoadResult
from lmcache_core.testing.storage import StorageBackendContract, make_frame, make_key, soon
from lmcache_plugins.redis.backend import RedisBackend
from lmcache_plugins.redis.record import Head, KeyNames, segment_name

SEGMENTS = 10


def head_of(number: int) -> bytes:
    return KeyNames("lmcache").head(make_key(number))


def segment_of(number: int, index: int) -> bytes:
    return segment_name(head_of(number), index)


class TestContract(StorageBackendContract):
    """Values just below 1 MiB."""

    frame_bytes = (1, 4096, 1024 * 1024 - 96, 1024 * 1024 - 95, 1024 * 1024, 9 * 1024 * 1024 + 1)

    @pytest.fixture
    def backend(self, connect: MakeBackend, redis_server: RedisServer) -> RedisBackend:
        return connect(redis_server.url)


class TestContractOfSegments(StorageBackendContract):
    """Values of 1 KiB, so that all chunks are in segments."""

    frame_bytes = (1, VALUE_BYTES - 32, VALUE_BYTES - 31, 1024, 2048, 2049, 300_000)

    @pytest.fixture
    def backend(self, redis_server: RedisServer) -> Iterator[RedisBackend]:
        backend = segmented(redis_server)
        yield backend
        backend.close()


class TestContractWithTTL(StorageBackendContract):
    @pytest.fixture
    def backend(self, redis_server: RedisServer) -> Iterator[RedisBackend]:
        backend = segmented(redis_server, ttl_s=60)
        yield backend
        backend.close()


class TestContractOverTLS(StorageBackendContract):
    @pytest.fixture
    def backend(self, connect: MakeBackend) -> Iterator[RedisBackend]:
        with RedisServer(tls=True) as server:
            yield connect(server.url, ca_file=server.ca_file)


class TestContractOverUnixSocket(StorageBackendContract):
    @pytest.fixture
    def backend(self, connect: MakeBackend, redis_server: RedisServer) -> RedisBackend:
        return connect(redis_server.unix_url)


def test_keys_lie_where_the_reference_says(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0)

    assert sorted(client.keys()) == sorted([head_of(0), *(segment_of(0, index) for index in range(SEGMENTS))])
    assert head_of(0).startswith(b"lmcache:{contract%2Fmodel@1@0@float32@256@")


def test_a_small_frame_takes_one_key(connect: MakeBackend, redis_server: RedisServer, client: redis.Redis) -> None:
    store(connect(redis_server.url), 0)

    assert client.keys() == [head_of(0)]


def test_a_full_value_wastes_no_memory(connect: MakeBackend, redis_server: RedisServer, client: redis.Redis) -> None:
    connect(redis_server.url).store([(make_key(0), make_frame(0, 4 * 1024 * 1024))], deadline=soon())

    assert client.memory_usage(segment_of(0, 0)) < 1.01 * 1024 * 1024


def test_a_chunk_without_its_head_is_a_miss(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0, 1)
    client.delete(head_of(0))

    out = bytearray(b"x" * LENGTH)
    assert backend.load_into([make_key(0)], [memoryview(out)], deadline=soon()) == [LoadResult.MISS]
    assert out == b"x" * LENGTH
    assert backend.contains([make_key(0)], deadline=soon()) == 0


@pytest.mark.parametrize("index", [0, 4, SEGMENTS - 1])
def test_a_chunk_without_a_segment_is_a_miss(backend: RedisBackend, client: redis.Redis, index: int) -> None:
    store(backend, 0, 1, 2)
    client.delete(segment_of(1, index))

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.MISS, LoadResult.HIT]


@pytest.mark.parametrize("index", [0, 4, SEGMENTS - 1])
@pytest.mark.parametrize("change", ["shorter", "longer", "empty", "other writer", "other type"])
def test_a_damaged_segment_is_corrupt(backend: RedisBackend, client: redis.Redis, index: int, change: str) -> None:
    store(backend, 0, 1, 2)
    name = segment_of(1, index)
    value = client.get(name)
    changed = {
        "shorter": value[:-1],
        "longer": value + b"x",
        "empty": b"",
        "other writer": bytes([value[0] ^ 1]) + value[1:],
    }
    client.delete(name)
    if change == "other type":
        client.lpush(name, "mine")
    else:
        client.set(name, changed[change])

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.CORRUPT, LoadResult.HIT]


def _heads() -> dict[str, bytes]:
    """Give the damaged heads by name: a writer's number is drawn by chance, and a test's id is the same in every run."""
    good = Head.new(LENGTH, VALUE_BYTES)
    raw = good.pack()
    return {
        "empty": b"",
        "cut": raw[:-1],
        "too long": raw + b"x",
        "another mark": b"y" + raw[1:],
        "another length": Head(LENGTH - 1, VALUE_BYTES, SEGMENTS, good.writer).pack(),
        "huge length": Head(2**63, VALUE_BYTES, SEGMENTS, good.writer).pack(),
        "too many segments": Head(LENGTH, VALUE_BYTES, 2**32 - 1, good.writer).pack(),
        "no segments": Head(LENGTH, VALUE_BYTES, 0, good.writer).pack(),
        "no value size": Head(LENGTH, 0, SEGMENTS, good.writer).pack(),
        "odd value size": Head(LENGTH, 8, SEGMENTS, good.writer).pack(),
        "larger values": Head.new(LENGTH, 2 * VALUE_BYTES).pack(),
        "three megabytes": b"x" * 3_000_000,
    }


HEADS = _heads()


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_damaged_head_is_corrupt(backend: RedisBackend, client: redis.Redis, head: bytes) -> None:
    store(backend, 0, 1, 2)
    client.set(head_of(1), head)

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.CORRUPT, LoadResult.HIT]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_chunk_with_a_damaged_head_can_be_deleted(backend: RedisBackend, client: redis.Redis, head: bytes) -> None:
    store(backend, 0)
    client.set(head_of(0), head)

    assert backend.delete([sized_key(0)], deadline=soon()) == 1
    assert client.keys() == []


def test_a_chunk_that_lost_a_segment_is_stored_again(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0)
    client.delete(segment_of(0, 3))

    store(backend, 0)

    assert load(backend, 0) == [LoadResult.HIT]


def test_a_chunk_that_is_there_is_not_sent_again(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0)
    before = client.get(head_of(0))

    store(backend, 0)

    assert client.get(head_of(0)) == before


def test_deleting_leaves_no_segment(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0, 1)

    assert backend.delete([make_key(0), make_key(1), make_key(2)], deadline=soon()) == 2
    assert client.keys() == []


def test_deleting_removes_segments_that_lost_their_head(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0)
    client.delete(head_of(0))

    assert backend.delete([sized_key(0)], deadline=soon()) == 0
    assert client.keys() == []


def test_other_keys_are_left_alone(backend: RedisBackend, client: redis.Redis) -> None:
    client.set("mine", "1")
    store(backend, 0)

    backend.delete([make_key(0)], deadline=soon())

    assert client.keys() == [b"mine"]


def test_a_prefix_tells_two_caches_apart(connect: MakeBackend, redis_server: RedisServer) -> None:
    store(connect(redis_server.url, key_prefix="one"), 0)

    assert load(connect(redis_server.url, key_prefix="two"), 0) == [LoadResult.MISS]


def test_a_head_expires_before_its_segments(redis_server: RedisServer, client: redis.Redis) -> None:
    backend = segmented(redis_server, ttl_s=60)
    store(backend, 0)

    head_ms = client.pttl(head_of(0))
    segments_ms = [client.pttl(segment_of(0, index)) for index in range(SEGMENTS)]

    assert 58_000 < head_ms < min(segments_ms) <= max(segments_ms) <= 60_000
    backend.close()


def test_storing_again_renews_the_time_to_live(redis_server: RedisServer, client: redis.Redis) -> None:
    backend = segmented(redis_server, ttl_s=60)
    store(backend, 0)
    for name in client.scan_iter():
        client.pexpire(name, 5_000)

    store(backend, 0)

    times_ms = [client.pttl(segment_of(0, index)) for index in range(SEGMENTS)]
    assert 58_000 < client.pttl(head_of(0)) < min(times_ms)
    backend.close()


def test_a_small_frame_expires(connect: MakeBackend, redis_server: RedisServer, client: redis.Redis) -> None:
    store(connect(redis_server.url, ttl_s=60), 0)

    assert 58_000 < client.pttl(head_of(0)) <= 60_000


def test_without_a_time_to_live_nothing_expires(backend: RedisBackend, client: redis.Redis) -> None:
    store(backend, 0)

    assert {client.pttl(name) for name in client.scan_iter()} == {-1}


def test_usage_is_the_servers_memory(redis_server: RedisServer, connect: MakeBackend) -> None:
    with RedisServer(options=["--maxmemory", "64mb"]) as server:
        backend = connect(server.url)
        backend.ping(deadline=soon())
        usage = backend.usage()

    assert usage.capacity_bytes == 64 * 1024 * 1024
    assert 0 < usage.bytes_used < usage.capacity_bytes
