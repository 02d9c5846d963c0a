"""Servers that freeze, die and come back, and many callers at once."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import redis
from tests.plugins.redis.conftest import LENGTH, MakeBackend, load, segmented, store
from tests.redis_server import RedisServer

from lmcache_core import BackendError, BackendTimeoutError, LoadResult
from lmcache_core.testing.storage import make_frame, make_key, soon
from lmcache_plugins.redis.backend import RedisBackend


@pytest.mark.timing
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


@pytest.mark.timing
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
    assert not isinstance(caught.value, BackendTimeoutError)
    # The dying server's socket may accept the second try for a moment longer.
    assert str(caught.value).startswith(
        (
            f"RemoteBackend at {redis_server.url}: cannot connect: connection refused",
            f"RemoteBackend at {redis_server.url}: the server closed the connection",
        )
    )


def test_a_closed_store_says_so(backend: RedisBackend, redis_server: RedisServer) -> None:
    backend.close()

    with pytest.raises(BackendError) as caught:
        backend.ping(deadline=soon())

    assert str(caught.value) == f"RemoteBackend at {redis_server.url}: the store is closed"


@pytest.mark.timing
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
