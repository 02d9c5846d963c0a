"""Lookups under way."""

from __future__ import annotations

import threading
import time

import pytest
from tests.core.client.fake_server import FakeServer, until
from tests.core.client.test_connection import errors
from tests.engine_calls import TOKENS, some_kv

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.wire.messages import Forsake, Found, Lookup


def hold_back(server: FakeServer) -> list[Lookup]:
    """Answer lookups only when the test does."""
    held: list[Lookup] = []

    def keep(message: Lookup) -> None:
        held.append(message)

    server.on(Lookup, keep)
    return held


def test_it_is_done_when_the_answer_is_there(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    server.freeze()
    pending = client.lookup_async(TOKENS)
    assert not pending.done()
    server.thaw()

    assert until(pending.done)
    assert pending.result(0) == 8


def test_result_can_be_asked_again_after_a_short_wait(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    server.freeze()
    pending = client.lookup_async(TOKENS)

    assert pending.result(0.05) == 0
    server.thaw()
    assert pending.result() == 8
    assert pending.result() == 8


def test_it_asks_for_a_prefetch(client: CacheClient, server: FakeServer) -> None:
    client.lookup_async(TOKENS).result()
    client.lookup(TOKENS)

    assert [message.prefetch for message in server.all(Lookup)] == [True, False]


def test_the_server_is_told_a_little_less_time_than_there_is(client: CacheClient, server: FakeServer) -> None:
    client.lookup_async(TOKENS).result()

    assert 8.5 < server.wait_for(Lookup).timeout_s <= 9.0


def test_cancelling_forsakes_the_lookup(client: CacheClient, server: FakeServer) -> None:
    held = hold_back(server)
    pending = client.lookup_async(TOKENS)
    pending.cancel()

    assert server.wait_for(Forsake).lookup_call == held[0].call
    assert pending.done()
    assert pending.result() == 0


def test_cancelling_after_the_answer_forsakes_the_promise(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    pending = client.lookup_async(TOKENS)
    assert until(pending.done)
    pending.cancel()

    assert server.wait_for(Forsake).lookup_call == server.all(Lookup)[0].call


def test_a_dropped_lookup_is_forsaken_when_its_answer_comes(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    server.freeze()
    client.lookup_async(TOKENS)
    server.thaw()

    assert server.wait_for(Forsake).lookup_call == server.wait_for(Lookup).call


@pytest.mark.timing
def test_a_dead_server_ends_a_waiting_lookup(client: CacheClient, server: FakeServer) -> None:
    hold_back(server)
    pending = client.lookup_async(TOKENS)
    server.wait_for(Lookup)
    threading.Timer(0.1, server.end_lifelines).start()
    began = time.monotonic()

    assert pending.result() == 0
    assert time.monotonic() - began < 5.0
    assert errors(client) == {("lookup", "server_gone"): 1}


def test_a_dead_server_makes_it_done(client: CacheClient, server: FakeServer) -> None:
    hold_back(server)
    pending = client.lookup_async(TOKENS)
    server.wait_for(Lookup)
    server.end_lifelines()

    assert until(pending.done)
    assert pending.result() == 0


def test_many_wait_at_once_without_threads(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    threads = threading.active_count()
    pending = [client.lookup_async(TOKENS) for _ in range(30)]

    assert threading.active_count() == threads
    assert [one.result() for one in pending] == [8] * 30


def test_many_threads_may_wait_at_once(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    server.freeze()
    found: list[int] = []

    def wait() -> None:
        pending = client.lookup_async(TOKENS)
        while not pending.done():
            pass
        found.append(pending.result())

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)  # they ask all the while
    server.thaw()
    for thread in threads:
        thread.join()

    assert found == [8] * 4
    assert errors(client) == {}


def test_a_found_that_says_nothing_is_not_forsaken(client: CacheClient, server: FakeServer) -> None:
    server.on(Lookup, lambda m: Found(m.call, 0, 0))
    server.freeze()
    client.lookup_async(TOKENS)
    server.thaw()
    server.wait_for(Lookup)
    client.lookup(TOKENS)

    assert server.all(Forsake) == []
