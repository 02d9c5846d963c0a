"""The numbers that operators are promised, against a real server that is frozen, not killed."""

from __future__ import annotations

import time
import timeit
from pathlib import Path

import pytest
from tests.outage import CHUNK_TOKENS, DEADLINE_S, KNOWN, LAYOUT, Hang, cache_over, measure_hang, measure_outage
from tests.redis_server import RedisServer

from lmcache_core import CacheManager

pytestmark = pytest.mark.timing

SLACK_S = 0.15
"""For a busy machine: what a thread may wait for its turn."""


@pytest.fixture(scope="module")
def hang() -> Hang:
    with RedisServer() as server:
        return measure_hang(server)


def test_hung_store_is_left_out_after_one_deadline_whatever_the_interval_is(hang: Hang) -> None:
    assert hang.bypass_s <= DEADLINE_S + SLACK_S


def test_hung_store_costs_one_request_one_deadline(hang: Hang) -> None:
    assert hang.first_call_s <= DEADLINE_S + SLACK_S


def test_hung_store_costs_later_requests_nothing(hang: Hang) -> None:
    assert hang.later_calls_s < DEADLINE_S / 10


def test_policy_answers_one_ping_timeout_later(hang: Hang) -> None:
    assert hang.gate_s <= DEADLINE_S + 0.2 + 3 * SLACK_S


def test_outage_costs_its_length_the_waiting_time_and_one_interval_at_most(redis_server: RedisServer) -> None:
    outage = measure_outage(redis_server, outage_s=5.0)

    assert outage.lost_s <= outage.bound_s


def test_frozen_store_delays_no_other_check(redis_server: RedisServer, tmp_path: Path) -> None:
    interval_s = 0.1
    remotes = [
        {"name": "frozen", "url": redis_server.url},
        {"name": "well", "url": f"file://{tmp_path}/kv"},
    ]
    overrides = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 0.01,
        "remotes": remotes,
        "extra_config": {"ping_interval": interval_s, "ping_timeout": 0.09, "fallback_policy": "local_cpu"},
    }
    with CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m") as cache:
        redis_server.pause()
        ages_s = [age_s for _ in range(300) if (age_s := well_check_age_s(cache)) is not None]
        redis_server.resume()

    assert len(ages_s) == 300
    assert max(ages_s) <= interval_s + 0.05 + SLACK_S


def well_check_age_s(cache: CacheManager) -> float | None:
    """Seconds since the check of the store that is well ended its last run, looked at now and then."""
    time.sleep(0.01)
    (check,) = [one for one in cache.health.report().checks if one.name.startswith("RemoteBackendHealthCheck(file:")]
    return check.age_s


def test_gate_costs_two_empty_calls_at_most_while_a_store_hangs(redis_server: RedisServer) -> None:
    class Empty:
        def call(self) -> bool:
            return True

    with cache_over(redis_server, ping_interval=30.0, ping_timeout=0.2, fallback_policy="local_cpu") as cache:
        redis_server.pause()
        cache.engine.lookup(KNOWN)
        ratios = sorted(
            timeit.timeit("call()", globals={"call": cache.is_healthy}, number=50_000)
            / timeit.timeit("call()", globals={"call": Empty().call}, number=50_000)
            for _ in range(9)
        )

    assert ratios[4] <= 2.0
