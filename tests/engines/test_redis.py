"""Redis: cold, warm in a new process, and killed, frozen, restarted and spoilt while requests are in flight."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.engines.cache_page import wait_for_status
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine
from tests.redis_server import RedisServer

TokensOf = Callable[[list[Answer]], list[list[int]]]

SOME = PROMPTS[:6] + PROMPTS[11:15]
"""Enough to be in flight for some seconds, of two families."""


@pytest.fixture(scope="module")
def cold(open_engine: Callable[[str], Engine]) -> Engine:
    return open_engine("redis cold")


@pytest.fixture(scope="module")
def cold_answers(cold: Engine) -> list[Answer]:
    return cold.answer(PROMPTS)


@pytest.fixture(scope="module")
def some(expected: list[Answer], tokens_of: TokensOf) -> list[list[int]]:
    return tokens_of(expected[:6] + expected[11:15])


def spoil(redis: RedisServer, source: random.Random) -> None:
    """Change a byte of some values, cut others, and make one nothing at all."""
    client = redis.client()
    for key in list(client.scan_iter()):
        value = bytearray(client.get(key) or b"")
        if value and source.random() < 0.4:
            place = source.randrange(len(value))
            kind = source.randrange(3)
            value[place] ^= 0x40
            client.set(key, bytes(value) if kind == 0 else bytes(value[:place]) if kind == 1 else b"")
    client.close()


@contextmanager
def meanwhile(act: Callable[[], None], delay_s: float) -> Iterator[None]:
    """Act once, so long after the requests have begun."""
    timer = threading.Timer(delay_s, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def wait_until_healthy(engine: Engine) -> None:
    """Wait until the cache reads and writes the store again."""
    end = time.monotonic() + 60
    while not engine.ask("health"):
        assert time.monotonic() < end
        time.sleep(0.1)


def fill(engine: Engine, redis: RedisServer) -> None:
    """Have the store hold what `SOME` needs, and tier 0 nothing."""
    wait_until_healthy(engine)
    engine.ask("forget")  # what tier 0 has is not written again
    engine.answer(SOME, tokens=1)
    assert engine.ask("flush")
    engine.ask("forget")


def test_a_cold_cache_changes_no_token(cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf) -> None:
    assert tokens_of(cold_answers) == tokens_of(expected[:20])


def test_both_sides_have_begun(cold: Engine) -> None:
    described = cold.ask("describe")
    assert (described["reason"], described["scheduler_reason"]) == ("", "")


def test_what_memory_forgot_comes_from_redis(
    cold: Engine, cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf
) -> None:
    assert cold.ask("flush")
    cold.ask("forget")
    answers = cold.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(expected[:20])
    assert sum(answer.cached_tokens for answer in answers) > 0.7 * sum(answer.prompt_tokens for answer in answers)


def test_a_frozen_redis_changes_no_token(
    cold: Engine, redis: RedisServer, some: list[list[int]], tokens_of: TokensOf
) -> None:
    fill(cold, redis)
    with meanwhile(redis.pause, 0.2):
        try:
            assert tokens_of(cold.answer(SOME)) == some
        finally:
            redis.resume()


def test_a_redis_that_restarts_empty_changes_no_token(
    cold: Engine, redis: RedisServer, some: list[list[int]], tokens_of: TokensOf
) -> None:
    fill(cold, redis)
    with meanwhile(redis.restart, 0.1):
        assert tokens_of(cold.answer(SOME)) == some


def test_a_spoilt_value_is_met_once(cold: Engine, redis: RedisServer, some: list[list[int]]) -> None:
    fill(cold, redis)
    spoil(redis, random.Random(9))
    cold.ask("forget")
    cold.answer(SOME)
    assert cold.ask("flush")
    cold.ask("forget")
    before = cold.ask("metrics")["lmcache:connector_failed_tokens_total"]
    cold.answer(SOME)
    assert cold.ask("metrics")["lmcache:connector_failed_tokens_total"] == before


def test_the_page_of_the_engines_cache_names_a_dead_store(
    cold: Engine, redis: RedisServer, some: list[list[int]], tokens_of: TokensOf
) -> None:
    fill(cold, redis)
    page = cold.ask("page")
    wait_for_status(page, 200)
    redis.kill()
    try:
        verdict = wait_for_status(page, 503)
        before = cold.ask("metrics")
        answers = cold.answer(SOME)
        after = cold.ask("metrics")
    finally:
        redis.start()
    assert verdict["reason"].startswith(f"check 'RemoteBackendHealthCheck({redis.url})' fails: ")
    assert tokens_of(answers) == some
    for name in ("vllm:external_prefix_cache_hits_total", "lmcache:connector_hit_tokens_total"):
        assert after[name] == before[name]
    assert wait_for_status(page, 200)["reason"] == ""
    fill(cold, redis)  # for the tests behind this one
    assert sum(answer.cached_tokens for answer in cold.answer(SOME)) > 500


@pytest.fixture(scope="module", params=["beside the steps", "in the steps"])
def engine(
    request: pytest.FixtureRequest,
    cold: Engine,
    cold_answers: list[Answer],
    redis: RedisServer,
    open_engine: Callable[[str], Engine],
) -> Iterator[Engine]:
    """The engine that wrote, which loads beside the steps, then a new one, which loads in them."""
    if request.param == "beside the steps":
        yield cold
        fill(cold, redis)
        cold.stop()
    else:
        yield open_engine("redis warm")


def test_a_warm_cache_changes_no_token(engine: Engine, some: list[list[int]], tokens_of: TokensOf) -> None:
    answers = engine.answer(SOME)
    assert tokens_of(answers) == some
    assert sum(answer.cached_tokens for answer in answers) > 500


def test_spoilt_values_change_no_token(
    engine: Engine, redis: RedisServer, some: list[list[int]], tokens_of: TokensOf
) -> None:
    fill(engine, redis)
    source = random.Random(5)
    spoil(redis, source)
    with meanwhile(lambda: spoil(redis, source), 0.15):
        assert tokens_of(engine.answer(SOME)) == some


def test_a_killed_redis_changes_no_token_and_is_used_again_when_it_is_back(
    engine: Engine, redis: RedisServer, some: list[list[int]], tokens_of: TokensOf
) -> None:
    fill(engine, redis)
    with meanwhile(redis.kill, 0.2):
        assert tokens_of(engine.answer(SOME)) == some
    redis.start()
    fill(engine, redis)
    answers = engine.answer(SOME)
    assert tokens_of(answers) == some
    assert sum(answer.cached_tokens for answer in answers) > 0


def test_no_request_failed_and_nothing_is_left_behind(engine: Engine) -> None:
    assert {answer.finish_reason for answer in engine.answer(SOME)} == {"length"}
    assert engine.ask("leaks") == {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}
