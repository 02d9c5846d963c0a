"""Measures what an outage of a real server costs; the system tests judge it, `bench/health.py` prints it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=64, dtype="float32")
CHUNK_TOKENS = 64
DEADLINE_S = 0.5
KNOWN = list(range(CHUNK_TOKENS))
_POLL_S = 0.005


@contextmanager
def cache_over(server: RedisServer, **extra: Any) -> Iterator[CacheManager]:
    """A cache whose only remote is the server, with one chunk in it that tier 0 has forgotten."""
    overrides = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 0.01,
        "remote_url": server.url,
        "blocking_timeout_secs": DEADLINE_S,
        "extra_config": extra,
    }
    made = CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m")
    with made as cache:
        cache.engine.store(KNOWN, torch.ones(LAYOUT.kv_shape(CHUNK_TOKENS)))
        if not cache.storage.flush(10.0):
            raise RuntimeError("the chunk was not written")
        cache.storage.local.clear()
        try:
            yield cache
        finally:
            server.resume()


def lookup_s(cache: CacheManager, tokens: list[int]) -> float:
    """Seconds of one lookup."""
    started = time.monotonic()
    cache.engine.lookup(tokens)
    return time.monotonic() - started


def until(true: Callable[[], bool], limit_s: float) -> float:
    """Seconds until something is true; an error when it takes too long."""
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > limit_s:
            raise TimeoutError(f"not within {limit_s} s")
        time.sleep(_POLL_S)
    return time.monotonic() - started


@dataclass(frozen=True)
class Hang:
    """What a store that hangs costs.

    Attributes:
        bypass_s: From the start of the first failing call until the store is left out.
        first_call_s: What that call cost.
        later_calls_s: The longest of a hundred calls after it.
        gate_s: From the start of the first failing call until the policy has answered.
    """

    bypass_s: float
    first_call_s: float
    later_calls_s: float
    gate_s: float


def measure_hang(server: RedisServer) -> Hang:
    """Freeze the server under a cache with LMCache's default interval of 30 s."""
    with cache_over(server, ping_interval=30.0, ping_timeout=0.2, fallback_policy="local_cpu") as cache:
        tier = cache.tiers[0]
        server.pause()
        started = time.monotonic()
        first_call_s = lookup_s(cache, KNOWN)
        until(tier.is_open, 10.0)
        bypass_s = time.monotonic() - started
        later_calls_s = max(lookup_s(cache, [number] * CHUNK_TOKENS) for number in range(100))
        until(lambda: tier.bypass.reads, 10.0)
        return Hang(bypass_s, first_call_s, later_calls_s, time.monotonic() - started)


@dataclass(frozen=True)
class Outage:
    """How long a store was not used because of an outage, all in seconds."""

    outage_s: float
    lost_s: float
    waiting_s: float
    interval_s: float

    @property
    def bound_s(self) -> float:
        """Its own length, the waiting time and one interval."""
        return self.outage_s + self.waiting_s + self.interval_s


def measure_outage(server: RedisServer, *, outage_s: float, waiting_s: float = 2.0, interval_s: float = 1.0) -> Outage:
    """Freeze the server for a while under steady lookups; time until a lookup is served from it again."""
    extra = {"ping_interval": interval_s, "ping_timeout": 0.2, "waiting_time_for_recovery": waiting_s}
    with cache_over(server, **extra) as cache:
        server.pause()
        started = time.monotonic()
        while time.monotonic() - started < outage_s:
            cache.engine.lookup(KNOWN)
            time.sleep(_POLL_S)
        server.resume()
        frozen_s = time.monotonic() - started
        until(lambda: cache.engine.lookup(KNOWN) == CHUNK_TOKENS, 60.0)
        return Outage(frozen_s, time.monotonic() - started, waiting_s, interval_s)
