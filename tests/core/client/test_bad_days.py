"""A server that dies, is late, or talks nonsense, at each step of each call."""

from __future__ import annotations

import time

import pytest
import torch
from tests.core.client.conftest import MakeClient
from tests.core.client.fake_server import FakeServer, Reply, until
from tests.core.client.test_calls import fetched
from tests.core.client.test_connection import errors
from tests.engine_calls import TOKENS, some_kv

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.wire.messages import (
    Abandon,
    Commit,
    Done,
    Forsake,
    Found,
    Lent,
    Lookup,
    Message,
    Ping,
    Pong,
    RefusalCode,
    Refused,
    Release,
    Reserve,
    Reserved,
    Retrieve,
    Return,
)

CALLS = {
    "lookup": lambda client: client.lookup(TOKENS) == 0,
    "lookup_async": lambda client: client.lookup_async(TOKENS).result() == 0,
    "store": lambda client: client.store([7] * 8, some_kv(8)) == 0,
    "retrieve": lambda client: not any(fetched(client)[0]),
    "release": lambda client: client.release(TOKENS) is False,
}
STEPS = [
    ("lookup", Lookup),
    ("lookup_async", Lookup),
    ("store", Reserve),
    ("store", Commit),
    ("retrieve", Retrieve),
    ("release", Release),
]


@pytest.mark.timing
@pytest.mark.parametrize(("call", "step"), STEPS)
def test_a_server_that_dies_at_a_step_ends_the_call_at_once(
    client: CacheClient, server: FakeServer, call: str, step: type[Message]
) -> None:
    client.store(TOKENS, some_kv(10))
    server.on(step, lambda _: server.end_lifelines())
    began = time.monotonic()

    assert CALLS[call](client)

    assert time.monotonic() - began < 5.0  # of the ten that the call may take
    operation = call.removesuffix("_async")
    assert errors(client) == {(operation, "server_gone"): 1}


@pytest.mark.timing
@pytest.mark.parametrize(("call", "step"), STEPS)
def test_a_server_that_is_late_ends_the_call_at_its_deadline(
    make_client: MakeClient, server: FakeServer, call: str, step: type[Message]
) -> None:
    client = make_client(timeout_s=0.3)
    client.store(TOKENS, some_kv(10))
    server.on(step, lambda _: None)
    began = time.monotonic()

    assert CALLS[call](client)

    limit_s = 4.0 if call == "release" else 2.0
    assert time.monotonic() - began < limit_s


@pytest.mark.parametrize(("call", "step"), STEPS)
@pytest.mark.parametrize(
    "nonsense",
    [b"", b"\xff", b"+PONG\r\n", b"\x93\xa4Pong\x01", b"\x92\xa5Hello\x01", bytes(100)],
)
def test_garbage_ends_the_call(
    client: CacheClient, server: FakeServer, call: str, step: type[Message], nonsense: bytes
) -> None:
    server.on(step, lambda _: nonsense)

    assert CALLS[call](client)
    assert list(errors(client)) == [(call.removesuffix("_async"), "confused")]


@pytest.mark.parametrize(("call", "step"), STEPS)
def test_an_answer_of_another_kind_ends_the_call(
    client: CacheClient, server: FakeServer, call: str, step: type[Message]
) -> None:
    server.on(step, lambda m: Pong(m.call, "boot-1", healthy=True, reason="", session_known=True))

    assert CALLS[call](client)
    assert list(errors(client)) == [(call.removesuffix("_async"), "confused")]


@pytest.mark.parametrize(("call", "step"), STEPS)
def test_a_refusal_ends_the_call(client: CacheClient, server: FakeServer, call: str, step: type[Message]) -> None:
    server.on(step, lambda m: Refused(m.call, RefusalCode.BUSY, "too many requests wait", "boot-1"))

    assert CALLS[call](client)
    assert errors(client) == {(call.removesuffix("_async"), "refused_busy"): 1}


@pytest.mark.parametrize(("call", "step"), STEPS)
def test_answers_with_other_numbers_are_passed_over(
    client: CacheClient, server: FakeServer, call: str, step: type[Message]
) -> None:
    client.store(TOKENS, some_kv(10))
    default = getattr(server, f"_{step.__name__.lower()}")
    server.on(step, lambda m: [Found(0, 99, 99), Done(m.call + 1000, 99), default(m), Found(m.call, 99, 99)])

    assert not CALLS[call](client)
    assert errors(client) == {}


# -- wrong blocks -------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        lambda m: Reserved(m.call, 5, (0,), (1 << 40,)),
        lambda m: Reserved(m.call, 5, (0,), (-4096,)),
        lambda m: Reserved(m.call, 5, (0, 1), (0,)),
        lambda m: Reserved(m.call, 5, (9,), (0,)),
        lambda m: Reserved(m.call, 5, (-1,), (0,)),
    ],
)
def test_blocks_that_cannot_be_are_not_filled(client: CacheClient, server: FakeServer, answer: Reply) -> None:
    server.on(Reserve, answer)  # type: ignore[arg-type]

    assert client.store(TOKENS, some_kv(10)) == 0
    assert server.wait_for(Abandon).lease == 5
    assert list(errors(client)) == [("store", "confused")]


@pytest.mark.parametrize("offsets", [(1 << 40,), (-4096,), (0, 0, 0)])
def test_blocks_that_cannot_be_are_not_read(client: CacheClient, server: FakeServer, offsets: tuple[int, ...]) -> None:
    server.on(Retrieve, lambda m: Lent(m.call, 5, offsets))

    assert not any(fetched(client)[0])
    assert server.wait_for(Return).lease == 5
    assert list(errors(client)) == [("retrieve", "confused")]


def test_more_chunks_than_asked_for_are_not_believed(client: CacheClient, server: FakeServer) -> None:
    server.on(Lookup, lambda m: Found(m.call, 1000, 1000))

    assert client.lookup(TOKENS) == 8


def test_a_server_without_an_arena_cannot_lend(make_client: MakeClient, server: FakeServer) -> None:
    server.blocks = 0
    client = make_client()
    server.on(Retrieve, lambda m: Lent(m.call, 5, (0,)))

    assert not any(fetched(client)[0])
    assert list(errors(client)) == [("retrieve", "confused")]


def test_too_long_a_request_is_not_sent(client: CacheClient, server: FakeServer) -> None:
    tokens = list(range((4 << 20) // 32 * 4 + 4))

    assert client.lookup(tokens) == 0
    assert server.all(Lookup) == []
    assert list(errors(client)) == [("lookup", "too_long")]


# -- late answers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "step", "given_back"),
    [("lookup", Lookup, Forsake), ("store", Reserve, Abandon), ("retrieve", Retrieve, Return)],
)
def test_what_a_late_answer_lends_goes_back(
    make_client: MakeClient, server: FakeServer, call: str, step: type[Message], given_back: type[Message]
) -> None:
    client = make_client(timeout_s=0.2)
    client.store(TOKENS, some_kv(10))
    server.freeze()

    assert CALLS[call](client)
    server.thaw()

    asked, returned = server.wait_for(step, 2 if call == "store" else 1), server.wait_for(given_back)
    assert getattr(returned, "lookup_call", asked.call) == asked.call
    assert until(lambda: call != "store" or server.reserved == {})


def test_a_commit_nobody_waited_for_may_still_come_true(make_client: MakeClient, server: FakeServer) -> None:
    client = make_client(timeout_s=0.2)
    server.on(Commit, lambda m: server.freeze())

    assert client.store(TOKENS, some_kv(10)) == 0
    del server.overrides[Commit]
    server.thaw()
    server.wait_for(Abandon)
    assert server.reserved == {}


# -- death between two messages -----------------------------------------------------------


def test_chunks_read_while_the_server_dies_are_whole(client: CacheClient, server: FakeServer) -> None:
    kv = some_kv(10)
    client.store(TOKENS, kv)
    adapter = client._adapter(4)
    scatter = adapter.scatter

    def die_first(*arguments: object) -> None:
        if server._thread is not None:
            server.die()
            assert until(lambda: not client.is_healthy())
        scatter(*arguments)  # type: ignore[arg-type]

    adapter.scatter = die_first  # type: ignore[method-assign]

    mask, out = fetched(client)

    assert mask == [True] * 8 + [False] * 2
    assert torch.equal(out[:, :, :8], kv[:, :, :8])


def test_chunks_stored_while_the_server_dies_are_not_reported(client: CacheClient, server: FakeServer) -> None:
    adapter = client._adapter(4)
    gather = adapter.gather

    def restart_first(*arguments: object) -> None:
        server.restart()
        assert until(lambda: client.server.boot_id == "boot-2")
        gather(*arguments)  # type: ignore[arg-type]

    adapter.gather = restart_first  # type: ignore[method-assign]

    assert client.store(TOKENS, some_kv(10)) == 0
    assert server.kept == {}
    assert server.all(Commit) == []


def test_pings_with_garbage_make_it_unhealthy(client: CacheClient, server: FakeServer) -> None:
    server.on(Ping, lambda _: b"garbage")

    assert until(lambda: not client.is_healthy())
    server.overrides.clear()
    assert until(client.is_healthy)
