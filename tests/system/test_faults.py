"""Every fault of the kit, between a whole cache and a real server: bounded, right, counted, and over when it is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, HealthState, KVLayout
from lmcache_core.testing import (
    Blackhole,
    Corrupt,
    Cut,
    Drip,
    ErrorReply,
    FaultProxy,
    HalfOpen,
    Hang,
    Latency,
    NetworkFault,
    Refuse,
    Way,
    flapping,
)

pytestmark = pytest.mark.timing

LAYOUT = KVLayout(num_layers=4, num_kv_heads=2, head_size=64, dtype="float32")
CHUNK_TOKENS = 64
CHUNK_BYTES = 256 * 1024
TOKENS = 4 * CHUNK_TOKENS
DEADLINE_S = 1.0
LONGEST_CALL_S = 1.2 * DEADLINE_S
FAULT_S = 0.6
SILENT_S = 1.2 * DEADLINE_S
"""Faults that only a deadline ends last longer than one."""
SILENT = (Latency, Hang, HalfOpen, Blackhole, Drip)
BACK_S = 15.0
"""The breaker's pause, and a ramp on which not every lookup is let through."""

HARMFUL = {
    "slower than the deadline": Latency(1.5 * DEADLINE_S),
    "refused": Refuse(),
    "hung": Hang(),
    "hung before the server": Hang(way=Way.BOTH),
    "hung inside a chunk": Hang(after_bytes=CHUNK_BYTES + CHUNK_BYTES // 2),
    "half open": HalfOpen(),
    "no network": Blackhole(),
    "dripping": Drip(50_000.0),
    "cut inside a chunk": Cut(CHUNK_BYTES // 2),
    "reset inside a chunk": Cut(CHUNK_BYTES // 2, reset=True),
    "replies corrupted": Corrupt(every_bytes=CHUNK_BYTES),
    "requests corrupted": Corrupt(every_bytes=CHUNK_BYTES, way=Way.REQUESTS),
    "loading": ErrorReply.loading(),
    "read-only": ErrorReply.readonly(),
    "password wanted": ErrorReply.noauth(),
    "reads refused": ErrorReply("ERR injected", commands=("GET",)),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as made:
        yield made


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[FaultProxy]:
    with server.client() as client:
        client.flushall()
    with FaultProxy(to=(server.host, server.port), seed=7) as made:
        yield made


@pytest.fixture
def cache(proxy: FaultProxy, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheManager]:
    monkeypatch.chdir(tmp_path)
    overrides = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 0.02,
        "remote_url": f"redis://{proxy.host}:{proxy.port}",
        "blocking_timeout_secs": DEADLINE_S,
        "extra_config": {"ping_interval": 0.5, "ping_timeout": 0.3, "waiting_time_for_recovery": 0.5},
    }
    with CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m") as made:
        yield made
        proxy.clear()


@dataclass
class Prompt:
    """A sequence whose KV follows from its tokens, so that every byte can be checked."""

    number: int

    @property
    def tokens(self) -> list[int]:
        return list(range(self.number * 1000, self.number * 1000 + TOKENS))

    @property
    def kv(self) -> torch.Tensor:
        rest = torch.arange(LAYOUT.kv_shape(1)[0] * LAYOUT.kv_shape(1)[1] * LAYOUT.kv_shape(1)[3])
        spread = rest.reshape(LAYOUT.kv_shape(1)[0], LAYOUT.kv_shape(1)[1], 1, LAYOUT.kv_shape(1)[3])
        return (torch.tensor(self.tokens).reshape(1, 1, TOKENS, 1) * 7919 + spread).float()


class Traffic:
    """Four threads that store, look up and retrieve through the store behind, and check what they get."""

    def __init__(self, cache: CacheManager) -> None:
        self._cache = cache
        self._stop = threading.Event()
        self.longest_s: dict[str, float] = {}
        self.errors: list[BaseException] = []
        self.wrong = 0
        self.delivered_tokens = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        turn = 0
        try:
            while not self._stop.wait(0.005):
                turn += 1
                new = Prompt(100 + 10 * number + turn % 10)
                self._time("store", lambda new=new: self._cache.engine.store(new.tokens, new.kv))
                self._cache.storage.local.clear()
                self.fetch(Prompt(turn % 4))
        except BaseException as error:
            self.errors.append(error)

    def fetch(self, prompt: Prompt) -> int:
        """Give the tokens delivered, all of them right."""
        engine, out = self._cache.engine, torch.zeros(LAYOUT.kv_shape(TOKENS))
        self._time("lookup", lambda: engine.lookup(prompt.tokens))
        mask = self._time("retrieve", lambda: engine.retrieve(prompt.tokens, out))
        tokens = int(mask.sum())
        with self._lock:
            self.delivered_tokens += tokens
            self.wrong += not torch.equal(out[:, :, :tokens], prompt.kv[:, :, :tokens])
        return tokens

    def _time(self, name: str, call: Callable[[], object]) -> object:
        begin_s = time.monotonic()
        result = call()
        with self._lock:
            self.longest_s[name] = max(self.longest_s.get(name, 0.0), time.monotonic() - begin_s)
        return result


def counted(cache: CacheManager) -> float:
    """What went wrong and was noticed."""
    names = {"get_blocking_failed_count", "put_failed_count", "lost_chunks", "degraded_requests"}
    return sum(
        sample.value
        for family in cache.metrics.registry.collect()
        for sample in family.samples
        if sample.name.removeprefix("lmcache:").removesuffix("_total") in names
    )


def corrupt_chunks(cache: CacheManager) -> float:
    return sum(
        sample.value
        for family in cache.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "lmcache:lost_chunks_total" and sample.labels["reason"].startswith("corrupt")
    )


def fill(cache: CacheManager) -> None:
    for number in range(4):
        prompt = Prompt(number)
        cache.engine.store(prompt.tokens, prompt.kv)
    assert cache.storage.flush(10.0)
    cache.storage.local.clear()


def check_of_store(cache: CacheManager) -> HealthState:
    (state,) = [check.state for check in cache.health.report().checks if "redis://" in check.name]
    return state


def await_recovery(cache: CacheManager, traffic: Traffic) -> float:
    """Seconds until the store delivers a whole prompt again and its check is UP."""
    begin_s = time.monotonic()
    prompt = Prompt(0)
    while True:
        cache.engine.store(prompt.tokens, prompt.kv)  # damaged chunks were deleted
        cache.storage.flush(2.0)
        cache.storage.local.clear()
        if traffic.fetch(prompt) == TOKENS and check_of_store(cache) is HealthState.UP:
            return time.monotonic() - begin_s
        assert time.monotonic() - begin_s < BACK_S, cache.health.report()
        time.sleep(0.05)


@pytest.mark.parametrize("fault", HARMFUL.values(), ids=HARMFUL)
def test_a_fault_is_bounded_harmless_counted_and_over(
    fault: NetworkFault, cache: CacheManager, proxy: FaultProxy
) -> None:
    fill(cache)
    with Traffic(cache) as traffic:
        proxy.apply(fault)
        time.sleep(SILENT_S if isinstance(fault, SILENT) else FAULT_S)
    proxy.clear()
    await_recovery(cache, traffic)
    for number in [*range(4), *range(100, 140)]:
        traffic.fetch(Prompt(number))

    assert traffic.errors == []
    assert traffic.wrong == 0
    assert max(traffic.longest_s.values()) < LONGEST_CALL_S, traffic.longest_s
    assert proxy.statistics.applied[type(fault).__name__] > 0
    assert counted(cache) > 0


@pytest.mark.parametrize("way", [Way.REPLIES, Way.REQUESTS])
def test_changed_bytes_are_found_in_chunks(way: Way, cache: CacheManager, proxy: FaultProxy) -> None:
    if way is Way.REQUESTS:
        proxy.apply(Corrupt(every_bytes=CHUNK_BYTES, way=way))
    fill(cache)
    proxy.apply(*([Corrupt(every_bytes=CHUNK_BYTES)] if way is Way.REPLIES else []))
    with Traffic(cache) as traffic:
        await_corruption = time.monotonic() + 10.0
        while not corrupt_chunks(cache):
            assert time.monotonic() < await_corruption
            time.sleep(0.01)

    assert (traffic.errors, traffic.wrong) == ([], 0)


def test_a_slow_network_is_no_failure(cache: CacheManager, proxy: FaultProxy) -> None:
    fill(cache)
    proxy.apply(Latency(0.02, jitter_s=0.02))
    with Traffic(cache) as traffic:
        time.sleep(FAULT_S)

    assert traffic.errors == []
    assert traffic.wrong == 0
    assert traffic.delivered_tokens >= TOKENS
    assert cache.is_healthy()


def test_a_full_server_is_still_read(cache: CacheManager, proxy: FaultProxy) -> None:
    fill(cache)
    proxy.apply(ErrorReply.oom())
    with Traffic(cache) as traffic:
        time.sleep(FAULT_S)
    healthy, state = cache.is_healthy(), check_of_store(cache)
    proxy.clear()
    await_recovery(cache, traffic)

    assert (traffic.errors, traffic.wrong) == ([], 0)
    assert traffic.delivered_tokens > 4 * TOKENS
    assert (healthy, state) == (True, HealthState.DEGRADED)
    assert max(traffic.longest_s.values()) < LONGEST_CALL_S


def test_a_store_that_comes_and_goes_never_hurts(cache: CacheManager, proxy: FaultProxy) -> None:
    fill(cache)
    with Traffic(cache) as traffic:
        proxy.schedule(flapping(Refuse(), up_s=0.2, down_s=0.2, cycles=5, jitter_s=0.1, seed=7)).wait(10.0)
    await_recovery(cache, traffic)

    assert (traffic.errors, traffic.wrong) == ([], 0)
    assert max(traffic.longest_s.values()) < LONGEST_CALL_S
