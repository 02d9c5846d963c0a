"""The Redis store against a real server."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import redis
from tests.plugins.redis.conftest import LENGTH, VALUE_BYTES, MakeBackend, segmented
from tests.redis_server import RedisServer

from lmcache_core import BackendError, BackendFullError, BackendTimeoutError, LoadResult
from lmcache_core.testing.storage import StorageBackendContract, make_frame, make_key, soon
from lmcache_plugins.redis.backend import RedisBackend
from lmcache_plugins.redis.record import Head, KeyNames, segment_name

SEGMENTS = 10


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


def head_of(number: int) -> bytes:
    return KeyNames("lmcache").head(make_key(number))


def segment_of(number: int, index: int) -> bytes:
    return segment_name(head_of(number), index)


def store(backend: RedisBackend, *numbers: int) -> None:
    backend.store([(make_key(number), make_frame(number, LENGTH)) for number in numbers], deadline=soon())


def load(backend: RedisBackend, *numbers: int) -> list[LoadResult]:
    outs = [bytearray(LENGTH) for _ in numbers]
    results = backend.load_into([make_key(n) for n in numbers], [memoryview(out) for out in outs], deadline=soon())
    for number, out, result in zip(numbers, outs, results, strict=True):
        assert result is not LoadResult.HIT or out == make_frame(number, LENGTH)
    return results


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


def _heads() -> list[bytes]:
    good = Head.new(LENGTH, VALUE_BYTES)
    raw = good.pack()
    return [
        b"",
        raw[:-1],
        raw + b"x",
        b"y" + raw[1:],
        Head(LENGTH - 1, VALUE_BYTES, SEGMENTS, good.writer).pack(),
        Head(2**63, VALUE_BYTES, SEGMENTS, good.writer).pack(),
        Head(LENGTH, VALUE_BYTES, 2**32 - 1, good.writer).pack(),
        Head(LENGTH, VALUE_BYTES, 0, good.writer).pack(),
        Head(LENGTH, 0, SEGMENTS, good.writer).pack(),
        Head(LENGTH, 8, SEGMENTS, good.writer).pack(),
        Head.new(LENGTH, 2 * VALUE_BYTES).pack(),
        b"x" * 3_000_000,
    ]


@pytest.mark.parametrize("head", _heads())
def test_a_damaged_head_is_corrupt(backend: RedisBackend, client: redis.Redis, head: bytes) -> None:
    store(backend, 0, 1, 2)
    client.set(head_of(1), head)

    assert load(backend, 0, 1, 2) == [LoadResult.HIT, LoadResult.CORRUPT, LoadResult.HIT]


@pytest.mark.parametrize("head", _heads())
def test_a_chunk_with_a_damaged_head_can_be_deleted(backend: RedisBackend, client: redis.Redis, head: bytes) -> None:
    store(backend, 0)
    client.set(head_of(0), head)

    assert backend.delete([make_key(0)], deadline=soon()) == 1
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

    assert backend.delete([make_key(0)], deadline=soon()) == 0
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


# A full server


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
def test_a_full_server_refuses_chunks_and_still_serves(connect: MakeBackend, policy: str) -> None:
    with RedisServer(options=["--maxmemory", "16mb", "--maxmemory-policy", policy]) as server:
        backend = connect(server.url)
        length = 3_000_000
        items = [(make_key(number), make_frame(number, length)) for number in range(10)]

        with pytest.raises(BackendFullError) as caught:
            backend.store(items, deadline=soon())
        stored = backend.contains([key for key, _ in items], deadline=soon())

        assert str(caught.value) == (
            f"RemoteBackend at {server.url}: the server is out of memory (remote_oom); "
            "raise maxmemory, set ttl_s, or let it evict with allkeys-lru"
        )
        outs = [memoryview(bytearray(length)) for _ in range(stored)]
        assert stored > 0
        assert (
            backend.load_into([make_key(n) for n in range(stored)], outs, deadline=soon()) == [LoadResult.HIT] * stored
        )
        with server.client() as client:
            assert len(client.keys()) == stored * 4  # nothing of the refused chunk


def test_an_evicting_server_never_gives_half_a_chunk(connect: MakeBackend) -> None:
    with RedisServer(options=["--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru"]) as server:
        backend = connect(server.url)
        length = 3_000_000
        for number in range(10):
            backend.store([(make_key(number), make_frame(number, length))], deadline=soon())
        outs = [bytearray(length) for _ in range(10)]

        results = backend.load_into(
            [make_key(n) for n in range(10)], [memoryview(out) for out in outs], deadline=soon()
        )

        assert set(results) == {LoadResult.HIT, LoadResult.MISS}
        for number, (out, result) in enumerate(zip(outs, results, strict=True)):
            assert result is LoadResult.MISS or out == make_frame(number, length)


@pytest.mark.parametrize(
    ("policy", "ttl_s", "expected"),
    [
        (
            "noeviction",
            60,
            [
                "the server's maxmemory-policy is noeviction, so that it refuses chunks when it is full; set maxmemory and allkeys-lru"
            ],
        ),
        (
            "volatile-lru",
            0,
            [
                "the server's maxmemory-policy is volatile-lru, which evicts only keys that expire, but ttl_s is 0; set ttl_s, or allkeys-lru on the server"
            ],
        ),
        ("volatile-lru", 60, []),
        ("allkeys-lru", 0, []),
    ],
)
def test_an_awkward_policy_is_told_once(
    connect: MakeBackend, caplog: pytest.LogCaptureFixture, policy: str, ttl_s: int, expected: list[str]
) -> None:
    caplog.set_level(logging.WARNING)
    with RedisServer(options=["--maxmemory-policy", policy]) as server:
        backend = connect(server.url, ttl_s=ttl_s)
        for _ in range(3):
            backend.ping(deadline=soon())

    assert [record.getMessage() for record in caplog.records] == [
        f"RemoteBackend at {server.url}: {sentence}" for sentence in expected
    ]


# Bad days


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("call", ["contains", "load_into", "store", "delete", "ping"])
def test_a_frozen_server_ends_each_call_at_its_deadline(
    connect: MakeBackend, redis_server: RedisServer, call: str, warm: bool
) -> None:
    backend = connect(redis_server.url)
    if warm:
        store(backend, 0)
    out, large = memoryview(bytearray(LENGTH)), make_frame(1, 50_000_000)
    redis_server.pause()
    deadline = time.monotonic() + 0.3
    calls = {
        "contains": lambda: backend.contains([make_key(0)], deadline=deadline),
        "load_into": lambda: backend.load_into([make_key(0)], [out], deadline=deadline),
        "store": lambda: backend.store([(make_key(1), large)], deadline=deadline),
        "delete": lambda: backend.delete([make_key(0)], deadline=deadline),
        "ping": lambda: backend.ping(deadline=deadline),
    }

    with pytest.raises(BackendTimeoutError) as caught:
        calls[call]()

    late_s = time.monotonic() - deadline
    redis_server.resume()
    assert 0 <= late_s < 0.1
    what = "no answer" if warm else "connected, but no answer"
    assert str(caught.value) == f"RemoteBackend at {redis_server.url}: {what} before the deadline"


def test_a_server_that_goes_on_serves_again(backend: RedisBackend, redis_server: RedisServer) -> None:
    store(backend, 0)
    redis_server.pause()
    with pytest.raises(BackendTimeoutError):
        backend.load_into([make_key(0)], [memoryview(bytearray(LENGTH))], deadline=time.monotonic() + 0.1)
    redis_server.resume()

    assert load(backend, 0) == [LoadResult.HIT]


def test_a_late_answer_is_never_taken_for_another(backend: RedisBackend, redis_server: RedisServer) -> None:
    store(backend, 0, 1)
    redis_server.pause()
    with pytest.raises(BackendTimeoutError):
        backend.contains([make_key(0)] * 5, deadline=time.monotonic() + 0.1)
    redis_server.resume()

    assert backend.contains([make_key(9)], deadline=soon()) == 0
    assert load(backend, 1) == [LoadResult.HIT]


@pytest.mark.parametrize(("patience_s", "shown"), [(0.3, "0.3"), (5.0, "0.5")])
def test_a_host_that_drops_everything_ends_the_call(connect: MakeBackend, patience_s: float, shown: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # fills the queue: the kernel drops who comes next
            backend = connect(f"redis://127.0.0.1:{port}", connect_timeout_s=0.5)
            begin = time.monotonic()

            with pytest.raises(BackendTimeoutError) as caught:
                backend.ping(deadline=begin + patience_s)

    assert time.monotonic() - begin < 0.7
    assert str(caught.value) == f"RemoteBackend at redis://127.0.0.1:{port}: no connection within {shown} s"


@pytest.mark.parametrize("call", ["load", "contains", "store", "delete", "ping"])
def test_a_dead_socket_is_rebuilt_by_the_next_call(backend: RedisBackend, redis_server: RedisServer, call: str) -> None:
    store(backend, 0)
    redis_server.restart()
    calls = {
        "load": lambda: load(backend, 0) == [LoadResult.MISS],
        "contains": lambda: backend.contains([make_key(0)], deadline=soon()) == 0,
        "store": lambda: store(backend, 0) is None,
        "delete": lambda: backend.delete([make_key(0)], deadline=soon()) == 0,
        "ping": lambda: backend.ping(deadline=soon()) is None,
    }

    assert calls[call]()


def test_a_stopped_server_is_an_error_and_its_return_is_noticed(
    backend: RedisBackend, redis_server: RedisServer
) -> None:
    store(backend, 0)
    redis_server.stop()

    with pytest.raises(BackendError) as caught:
        load(backend, 0)

    assert str(caught.value) == f"RemoteBackend at {redis_server.url}: cannot connect: connection refused"
    assert not isinstance(caught.value, BackendTimeoutError)
    redis_server.start()
    assert load(backend, 0) == [LoadResult.MISS]


def test_a_server_that_dies_during_a_call_is_an_error(connect: MakeBackend, redis_server: RedisServer) -> None:
    backend = connect(redis_server.url)
    backend.ping(deadline=soon())
    redis_server.pause()
    killer = threading.Timer(0.2, redis_server.kill)
    killer.start()

    with pytest.raises(BackendError) as caught:
        backend.store([(make_key(0), make_frame(0, 50_000_000))], deadline=soon())

    killer.join()
    assert str(caught.value) == f"RemoteBackend at {redis_server.url}: cannot connect: connection refused"


def test_a_closed_store_says_so(backend: RedisBackend, redis_server: RedisServer) -> None:
    backend.close()

    with pytest.raises(BackendError) as caught:
        backend.ping(deadline=soon())

    assert str(caught.value) == f"RemoteBackend at {redis_server.url}: the store is closed"


def test_closing_does_not_wait_for_a_frozen_server(backend: RedisBackend, redis_server: RedisServer) -> None:
    store(backend, 0)
    redis_server.pause()
    begin = time.monotonic()

    backend.close()

    assert time.monotonic() - begin < 0.1


def test_idle_connections_are_bounded(redis_server: RedisServer, client: redis.Redis) -> None:
    backend = segmented(redis_server, connections=2)
    threads = [threading.Thread(target=store, args=(backend, *range(n, n + 20))) for n in range(0, 160, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert client.info("clients")["connected_clients"] <= 3
    backend.close()


def test_two_writers_of_one_chunk_never_give_a_mixture(redis_server: RedisServer, client: redis.Redis) -> None:
    """Chunks of one key are equal but for rounding; these differ, so that a mixture would show."""
    backends = [segmented(redis_server) for _ in range(4)]
    done = threading.Event()

    def write(number: int) -> None:
        while not done.is_set():
            backends[number].store([(make_key(0), make_frame(number, LENGTH))], deadline=soon())
            backends[number].delete([make_key(0)], deadline=soon())

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    frames = {bytes(make_frame(number, LENGTH)) for number in range(3)}
    hits = 0
    end = time.monotonic() + 20
    while hits < 100 and time.monotonic() < end:
        out = bytearray(LENGTH)
        if backends[3].load_into([make_key(0)], [memoryview(out)], deadline=soon()) == [LoadResult.HIT]:
            hits += 1
            assert bytes(out) in frames
    done.set()
    for writer in writers:
        writer.join()
    for backend in backends:
        backend.close()
    assert hits == 100
