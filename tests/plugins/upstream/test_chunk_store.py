"""Chunks of LMCache in real stores."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmcache_core import ChunkKey, KeyNamespace, LoadResult, open_tiers
from lmcache_plugins.upstream.chunk_store import ChunkStore
from lmcache_plugins.upstream.configured import read_configuration

FULL = 4096
NAMESPACE = KeyNamespace(
    model_name="m", world_size=1, rank=0, dtype="bfloat16", layout="x", chunk_tokens=16, payload_bytes=FULL
)
CHUNK = bytes(range(256)) * 16
SHORT = CHUNK[:1000]


def key(number: int) -> ChunkKey:
    return ChunkKey(NAMESPACE, number.to_bytes(32, "big"))


def store_at(url: str, timeout_s: float = 5.0, ping_timeout_s: float = 5.0) -> ChunkStore:
    (tier,) = open_tiers(read_configuration({}, url=url))
    return ChunkStore(tier, FULL, timeout_s, ping_timeout_s)


def fetch(store: ChunkStore, number: int) -> bytes | None:
    loads = store.begin(1, store.deadline())
    if loads is None:
        return None
    chunk = loads.fetch(key(number))
    loads.one_is_over()
    return None if chunk is None else bytes(chunk)


def keep(store: ChunkStore, number: int, chunk: bytes = CHUNK) -> str:
    return store.keep(key(number), memoryview(chunk), store.deadline())


@pytest.fixture(params=["file", "redis"])
def store(request, tmp_path: Path, monkeypatch) -> Iterator[ChunkStore]:
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/kv" if request.param == "file" else request.getfixturevalue("redis_server").url
    made = store_at(url)
    yield made
    made.close()


@pytest.fixture
def redis_store(redis_server, tmp_path: Path, monkeypatch) -> Iterator[ChunkStore]:
    monkeypatch.chdir(tmp_path)
    made = store_at(redis_server.url, timeout_s=0.4)
    yield made
    made.close()


def test_what_is_kept_is_fetched(store) -> None:
    assert (keep(store, 1), fetch(store, 1), fetch(store, 2)) == ("", CHUNK, None)


def test_a_short_chunk_keeps_its_length(store) -> None:
    keep(store, 1, SHORT)

    assert fetch(store, 1) == SHORT


def test_leading_chunks_are_counted(store) -> None:
    for number in (1, 2, 4):
        keep(store, number)

    assert store.present([key(number) for number in (1, 2, 3, 4)], store.deadline()) == 2
    assert store.present([], store.deadline()) == 0


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "TypeError: 'NoneType' object cannot be interpreted as an integer"),
        (-3, "ValueError: gave -3 for 2 keys; give how many of the leading ones are there"),
        (9, "ValueError: gave 9 for 2 keys; give how many of the leading ones are there"),
    ],
)
@pytest.mark.parametrize("asked_before", [False, True])
def test_a_store_that_counts_wrong_has_failed(
    store, monkeypatch, caplog, *, asked_before: bool, said: object, reason: str
) -> None:
    for number in (1, 2):
        keep(store, number)
    keys = [key(1), key(2)]
    if asked_before:
        assert store.present(keys, store.deadline()) == 2
    monkeypatch.setattr(type(store._tier._backend), "contains", lambda _backend, _keys, *, deadline: said)

    assert store.present(keys, store.deadline()) == 0
    assert store._tier.load_failures == 1
    (line,) = [line for line in caplog.messages if "treated as a miss" in line]
    assert f"RemoteBackend ({store._tier.url}): contains raised {reason} (at most" in line


@pytest.mark.parametrize("said", [[], [None], [True], [LoadResult.HIT] * 2])
def test_a_store_that_says_no_result_of_a_load_has_failed(store, monkeypatch, said: list[object]) -> None:
    keep(store, 1)
    monkeypatch.setattr(type(store._tier._backend), "load_into", lambda _backend, _keys, _outs, *, deadline: said)

    assert fetch(store, 1) is None
    assert store._tier.load_failures == 1


def test_dropped_chunks_are_gone(store) -> None:
    keep(store, 1)

    assert (store.drop([key(1), key(2)]), fetch(store, 1)) == (1, None)


def test_a_store_that_answers_pings_with_lmcaches_success(store) -> None:
    assert store.ping() == 0


def test_what_a_ping_met_is_in_the_log_once_until_it_answers(redis_store, redis_server, caplog) -> None:
    def refused() -> list[str]:
        return [line for line in caplog.messages if line.startswith("lmcore: a ping failed: ")]

    redis_server.kill()
    with caplog.at_level(logging.WARNING, "lmcache_plugins.upstream"):
        assert (redis_store.ping(), redis_store.ping()) == (-2, -2)
        assert len(refused()) == 1
        assert f"RemoteBackend at {redis_server.url}: cannot connect" in refused()[0]
        redis_server.start()
        assert redis_store.ping() == 0
        redis_server.kill()
        assert (redis_store.ping(), len(refused())) == (-2, 2)


def test_a_ping_has_a_time_of_its_own(redis_server, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = store_at(redis_server.url, timeout_s=60.0, ping_timeout_s=0.2)
    redis_server.pause()
    try:
        assert made.ping() == -1
    finally:
        redis_server.resume()
        made.close()


@pytest.mark.timing
def test_a_damaged_chunk_is_a_miss_and_is_deleted(redis_store, redis_server) -> None:
    keep(redis_store, 1)
    with redis_server.client() as client:
        (name,) = client.keys("*")
        client.setrange(name, 300, b"damage")

        assert fetch(redis_store, 1) is None
        end = time.monotonic() + 10
        while client.exists(name):
            assert time.monotonic() < end


@pytest.mark.timing
def test_a_frozen_store_answers_by_its_deadline_and_then_at_once(redis_store, redis_server) -> None:
    keep(redis_store, 1)
    redis_server.pause()
    try:
        started = time.monotonic()
        assert redis_store.present([key(1)], redis_store.deadline()) == 0
        late_s = time.monotonic() - started
        started = time.monotonic()
        assert (fetch(redis_store, 1), keep(redis_store, 2)) == (None, "breaker_open")
        open_s = time.monotonic() - started
        assert redis_store.ping() == -1
    finally:
        redis_server.resume()
    assert 0.3 < late_s < 5.0
    assert open_s < 0.4  # it waits for no deadline


def test_a_dead_store_is_misses_and_lost_chunks(redis_store, redis_server) -> None:
    redis_server.kill()

    assert (keep(redis_store, 1), fetch(redis_store, 1), redis_store.ping()) == ("error", None, -2)
    assert (redis_store.present([key(1)], redis_store.deadline()), redis_store.drop([key(1)])) == (0, 0)


def test_a_chunk_whose_time_is_over_is_not_stored(redis_store) -> None:
    assert redis_store.keep(key(1), memoryview(CHUNK), time.monotonic() - 1) == "timeout"
    assert fetch(redis_store, 1) is None


@pytest.mark.timing
def test_on_the_way_back_a_retrieve_goes_along_with_its_lookup(redis_store, redis_server) -> None:
    keep(redis_store, 1)
    redis_server.kill()
    while redis_store.begin(1, redis_store.deadline()) is not None:
        fetch(redis_store, 1)
    redis_server.start()
    keys = [key(1)]
    end = time.monotonic() + 20
    while not redis_store.present(keys, redis_store.deadline()):
        keep(redis_store, 1)
        assert time.monotonic() < end
        time.sleep(0.01)

    assert (redis_store.present(keys, redis_store.deadline()), fetch(redis_store, 1)) == (1, CHUNK)
