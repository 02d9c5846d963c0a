"""A server that is full, or evicts, or will surprise when it is."""

from __future__ import annotations

import logging

import pytest
from tests.plugins.redis.conftest import MakeBackend
from tests.redis_server import RedisServer

from lmcache_core import BackendFullError, LoadResult
from lmcache_core.testing.storage import make_frame, make_key, soon


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

    assert list(backend.notices()) == expected
    assert [record.getMessage() for record in caplog.records] == [
        f"RemoteBackend at {server.url}: {sentence}" for sentence in expected
    ]


def test_a_notice_goes_when_the_server_is_mended(connect: MakeBackend) -> None:
    with RedisServer(options=["--maxmemory-policy", "noeviction"]) as server:
        backend = connect(server.url)
        backend.ping(deadline=soon())
        before = backend.notices()
        with server.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        backend.ping(deadline=soon())

    assert (len(before), backend.notices()) == (1, ())
