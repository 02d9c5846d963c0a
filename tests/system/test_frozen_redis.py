"""A Redis that is stopped, not killed, under load: nobody waits, `/health` says why, and it comes back by itself."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, KVLayout

pytestmark = pytest.mark.timing

LAYOUT = KVLayout(num_layers=4, num_kv_heads=2, head_size=64, dtype="float32")
CHUNK_TOKENS = 64
WAITING_S = 2.0
INTERVAL_S = 1.0
LONGEST_CALL_S = 1.2


@pytest.fixture
def cache(redis_server: RedisServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CacheManager]:
    overrides = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 0.02,
        "remote_url": redis_server.url,
        "blocking_timeout_secs": 1.0,
        "internal_api_server_enabled": True,
        "internal_api_server_port_start": 0,
        "extra_config": {
            "ping_interval": INTERVAL_S,
            "ping_timeout": 0.3,
            "waiting_time_for_recovery": WAITING_S,
            "fallback_policy": request.param,
        },
    }
    made = CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m")
    with made:
        yield made
        redis_server.resume()


class Load:
    """Four threads that store, look up and retrieve, and remember how long each call took."""

    def __init__(self, cache: CacheManager) -> None:
        self._cache = cache
        self._stop = threading.Event()
        self.longest_s: dict[str, float] = {}
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        kv = torch.ones(LAYOUT.kv_shape(4 * CHUNK_TOKENS))
        engine, turn = self._cache.engine, 0
        try:
            while not self._stop.is_set():
                turn += 1
                tokens = list(range(turn * 10 + number, turn * 10 + number + 4 * CHUNK_TOKENS))
                self._time("store", lambda tokens=tokens: engine.store(tokens, kv))
                self._time("lookup", lambda tokens=tokens: engine.lookup([0, *tokens[1:]]))
                self._time("retrieve", lambda tokens=tokens: engine.retrieve(tokens, kv))
                self._stop.wait(0.005)
        except BaseException as error:
            self.errors.append(error)

    def _time(self, name: str, call: Callable[[], object]) -> None:
        started = time.monotonic()
        call()
        self.longest_s[name] = max(self.longest_s.get(name, 0.0), time.monotonic() - started)


def health(cache: CacheManager) -> tuple[float, dict[str, Any]]:
    """Seconds the page took, and what it says."""
    assert cache.http is not None
    started = time.monotonic()
    try:
        with urllib.request.urlopen(f"{cache.http.address}/health", timeout=5) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
    return time.monotonic() - started, json.loads(body)


def until(true: Callable[[], bool], timeout_s: float) -> float:
    """Seconds until something is true."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < timeout_s
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.mark.parametrize("cache", ["recompute", "local_cpu"], indirect=True)
def test_frozen_redis_costs_nobody_more_than_a_deadline(cache: CacheManager, redis_server: RedisServer) -> None:
    known = list(range(5_000_000, 5_000_000 + CHUNK_TOKENS))
    cache.engine.store(known, torch.ones(LAYOUT.kv_shape(CHUNK_TOKENS)))
    assert cache.storage.flush(10.0)

    with Load(cache) as load:
        time.sleep(0.5)
        redis_server.pause()
        frozen_for_s = until(lambda: health(cache)[1]["state"] != "up", 5.0)
        time.sleep(max(0.0, 3.0 - frozen_for_s))
        page_s, page = health(cache)
        redis_server.resume()

        def serves_again() -> bool:
            cache.storage.local.clear()
            return cache.engine.lookup(known) == CHUNK_TOKENS

        back_s = until(serves_again, 30.0)

    assert load.errors == []
    assert max(load.longest_s.values()) < LONGEST_CALL_S, load.longest_s
    assert page_s < 1.0
    assert "RemoteBackendHealthCheck" in json.dumps(page)
    assert "no answer" in page["reason"]
    assert back_s < WAITING_S + 2 * INTERVAL_S
