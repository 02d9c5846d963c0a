"""Our check of remotes watches LMCache's own connectors: LMCache never pings its Redis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.upstream.conftest import wait_until

from lmcache_core import BackendError, BackendTimeoutError, ChunkKey, KeyNamespace, LoadResult


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG", json.dumps({"checks": [{"match": "Thread*", "enforce": False}]}))


def key(number: int) -> ChunkKey:
    namespace = KeyNamespace(model_name="m", world_size=1, rank=0, dtype="bytes", layout="x", chunk_tokens=1)
    return ChunkKey(namespace, number.to_bytes(32, "big"))


def tier_of(engine: object) -> object:
    """The view's tier, as a check gets it."""
    from lmcache_plugins.upstream.health_keys import HealthKeys
    from lmcache_plugins.upstream.remote import RemoteTier

    keys = HealthKeys(30.0, 1.0, 10, 300.0, "recompute", 30.0)
    return RemoteTier("RemoteBackend", engine.remote, keys)  # type: ignore[attr-defined]


def test_a_dead_redis_of_lmcache_is_noticed_and_found_again(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=redis_server.url)
    wait_until(lambda: engine.monitor.total_runs > 2)
    assert engine.manager.is_healthy()

    redis_server.kill()
    wait_until(lambda: not engine.manager.is_healthy())
    redis_server.start()
    wait_until(engine.manager.is_healthy)


def test_watching_a_redis_leaves_nothing_in_it(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=redis_server.url)
    wait_until(lambda: engine.monitor.total_runs > 3)

    with redis_server.client() as client:
        assert client.keys("*") == []


def test_local_cpu_goes_for_the_backend_by_lmcaches_name(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=redis_server.url, extra_config={"fallback_policy": "local_cpu"})
    redis_server.kill()
    wait_until(lambda: engine.storage.is_backend_bypassed("RemoteBackend"))
    redis_server.start()
    wait_until(lambda: not engine.storage.is_backend_bypassed("RemoteBackend"))

    assert engine.manager.is_healthy()


def test_a_round_trip_through_lmcaches_files_gives_back_what_was_stored(lmcache_of, tmp_path: Path) -> None:
    tier = tier_of(lmcache_of(remote_url=f"fs://localhost:0{tmp_path}/kv"))
    out = bytearray(5)

    tier.store([(key(1), memoryview(b"hello"))], timeout_s=5)
    assert tier.load_into([key(1), key(2)], [memoryview(out), memoryview(bytearray(5))], timeout_s=5) == [
        LoadResult.HIT,
        LoadResult.MISS,
    ]
    assert (bytes(out), tier.delete([key(1), key(2)], timeout_s=5)) == (b"hello", 1)
    assert tier.load_into([key(1)], [memoryview(out)], timeout_s=5) == [LoadResult.MISS]


def test_a_value_of_another_length_is_corrupt(lmcache_of, tmp_path: Path) -> None:
    tier = tier_of(lmcache_of(remote_url=f"fs://localhost:0{tmp_path}/kv"))
    tier.store([(key(1), memoryview(b"hello"))], timeout_s=5)

    assert tier.load_into([key(1)], [memoryview(bytearray(4))], timeout_s=5) == [LoadResult.CORRUPT]


def test_a_frozen_redis_is_a_timeout(lmcache_of, redis_server) -> None:
    tier = tier_of(lmcache_of(remote_url=redis_server.url, extra_config={"ping_interval": 60}))
    redis_server.pause()
    try:
        with pytest.raises(BackendTimeoutError) as caught:
            tier.ping(timeout_s=0.2)
    finally:
        redis_server.resume()

    assert str(caught.value) == f"RemoteBackend ({redis_server.url}): ping gave no answer within 0.2 s"


def test_a_dead_redis_is_an_error(lmcache_of, redis_server) -> None:
    tier = tier_of(lmcache_of(remote_url=redis_server.url, extra_config={"ping_interval": 60}))
    redis_server.kill()

    with pytest.raises(BackendError, match=r"ping raised ConnectionError"):
        tier.ping(timeout_s=5)


def test_a_password_is_not_in_the_tiers_address(lmcache_of) -> None:
    tier = tier_of(lmcache_of(remote_url="redis://user:canary@127.0.0.1:1/0"))

    assert tier.url == "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis//:canary@127.0.0.1:1", "an address without ://"),
        ("lmcore+redis://:canary@127.0.0.1:99999", "lmcore+redis://"),
    ],
)
def test_of_an_address_that_cannot_be_read_no_more_than_its_scheme_is_shown(lmcache_of, address, shown) -> None:
    tier = tier_of(lmcache_of(remote_url=address))

    assert tier.url == shown
    with pytest.raises(BackendError) as caught:
        tier.ping(timeout_s=1)
    assert str(caught.value) == f"RemoteBackend ({shown}): lmcache has no connection to it"


def test_what_probes_take_of_lmcaches_memory_is_given_back(lmcache_of, tmp_path: Path) -> None:
    engine = lmcache_of(remote_url=f"fs://localhost:0{tmp_path}/kv")
    wait_until(lambda: engine.monitor.total_runs > 5)
    engine.monitor.stop()
    addresses = engine.storage.local_cpu_backend.memory_allocator.pin_allocator.address_manager

    assert engine.manager.is_healthy()
    assert addresses.get_free_size() == addresses._size
