"""A Redis that dies and comes back, as Kubernetes and gRPC clients see it."""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
STORE = "RemoteBackend"
Make = Callable[..., CacheManager]


@pytest.fixture
def make(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.chdir(tmp_path)
    made: list[CacheManager] = []

    def build(**overrides: object) -> CacheManager:
        config = {
            "max_local_cpu_size": 0.01,
            "remote_url": redis_server.url,
            "blocking_timeout_secs": 1.0,
            "internal_api_server_enabled": True,
            "internal_api_server_port_start": 0,
            "internal_grpc_port": 0,
            "extra_config": {"ping_interval": 0.5, "ping_timeout": 0.3, "waiting_time_for_recovery": 0.5},
            **overrides,
        }
        made.append(CacheManager.from_config(overrides=config, environ={}, layout=LAYOUT, model_name="m"))
        made[-1].start()
        return made[-1]

    yield build
    for one in made:
        one.stop()


class Watcher:
    """A client of the gRPC service that watches one name."""

    def __init__(self, cache: CacheManager, service: str) -> None:
        assert cache.grpc is not None
        self._channel = grpc.insecure_channel(str(cache.grpc.address))
        stub = health_pb2_grpc.HealthStub(self._channel)
        self._stream = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60)
        self._got: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def next(self) -> str:
        return self._got.get(timeout=20)

    def _read(self) -> None:
        try:
            for answer in self._stream:
                self._got.put(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
        except grpc.RpcError as error:
            self._got.put(error.code().name)


def probes(cache: CacheManager) -> dict[str, int]:
    assert cache.http is not None
    found = {}
    for path in ("/livez", "/readyz", "/startupz", "/health"):
        try:
            with urllib.request.urlopen(f"{cache.http.address}{path}", timeout=5) as answer:
                found[path] = answer.status
        except urllib.error.HTTPError as error:
            with error:
                found[path] = error.code
                json.load(error)
    return found


@pytest.mark.parametrize(("readiness", "ready"), [("started", 200), ("healthy", 503)])
def test_a_dead_redis_never_fails_liveness_and_readiness_follows_the_configuration(
    make: Make, redis_server: RedisServer, readiness: str, ready: int
) -> None:
    cache = make(readiness=readiness)
    well = probes(cache)
    with Watcher(cache, "") as system:
        first = system.next()
        redis_server.kill()
        second = system.next()
        dead = probes(cache)
        redis_server.start()
        third = system.next()

    assert well == {"/livez": 200, "/readyz": 200, "/startupz": 200, "/health": 200}
    assert dead == {"/livez": 200, "/readyz": ready, "/startupz": 200, "/health": 503}
    assert [first, second, third] == ["SERVING", "NOT_SERVING", "SERVING"]
    assert probes(cache) == well


def test_a_client_that_watches_the_store_learns_when_it_dies_and_when_it_is_back(
    make: Make, redis_server: RedisServer
) -> None:
    cache = make()
    with Watcher(cache, STORE) as store, Watcher(cache, "livez") as alive:
        seen = [store.next()]
        redis_server.kill()
        seen.append(store.next())
        redis_server.start()
        seen.append(store.next())
        first = alive.next()
        cache.stop()

        assert seen == ["SERVING", "NOT_SERVING", "SERVING"]
        assert [first, alive.next()] == ["SERVING", "NOT_SERVING"]
