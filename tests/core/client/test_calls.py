"""Calls on good days: what goes over the wire, and what comes of it."""

from __future__ import annotations

import torch
from tests.core.client.fake_server import FakeServer
from tests.engine_calls import TOKENS, some_kv

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.contracts.cache import Cleared
from lmcache_core.wire.messages import Abandon, Commit, Lookup, Register, Reserve, Retrieve, Return


def fetched(client: CacheClient, tokens: list[int] = TOKENS, **how: object) -> tuple[list[bool], torch.Tensor]:
    out = torch.zeros_like(some_kv(len(tokens)))
    return client.retrieve(tokens, out, **how).tolist(), out  # type: ignore[arg-type]


def test_stored_chunks_come_back_equal(client: CacheClient) -> None:
    kv = some_kv(10)
    assert client.store(TOKENS, kv) == 8

    mask, out = fetched(client)

    assert mask == [True] * 8 + [False] * 2
    assert torch.equal(out[:, :, :8], kv[:, :, :8])
    assert not out[:, :, 8:].any()


def test_chunks_are_of_the_servers_size(client: CacheClient) -> None:
    assert client.chunk_tokens == 4


def test_a_lookup_counts_leading_tokens(client: CacheClient) -> None:
    client.store(TOKENS, some_kv(10))

    assert client.lookup([*TOKENS[:4], 99, 99, 99, 99]) == 4


def test_an_async_lookup_counts_the_same(client: CacheClient) -> None:
    client.store(TOKENS, some_kv(10))
    pending = client.lookup_async(TOKENS)

    assert pending.result() == 8
    assert pending.done()


def test_salt_and_variant_travel_as_hashes(client: CacheClient, server: FakeServer) -> None:
    client.lookup(TOKENS, salt="tenant", variant="adapter", request_id="r")

    sent = server.wait_for(Lookup)
    assert (len(sent.salt_hash), len(sent.variant_hash), sent.request_id) == (32, 32, "r")
    assert "tenant" not in repr(sent)


def test_skipped_chunks_are_not_lent(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))

    mask, out = fetched(client, skip_tokens=5)

    assert server.wait_for(Retrieve).skip_chunks == 1
    assert mask == [True] * 8 + [False] * 2
    assert not out[:, :, :4].any()


def test_lent_blocks_go_back_with_what_was_used(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    fetched(client)

    assert server.wait_for(Return).delivered_chunks == 2


def test_a_scheduler_asks_for_all_ranks_at_once(make_client, server: FakeServer) -> None:
    client = make_client(world_size=2, ranks=(0, 1))
    client.lookup(TOKENS)

    first, second = server.wait_for(Lookup).digests
    assert (len(first), len(second)) == (64, 64)
    assert first != second
    assert server.wait_for(Register).ranks == (0, 1)


def test_a_failed_copy_abandons_the_blocks(client: CacheClient, server: FakeServer) -> None:
    client._adapter(4).gather = lambda *_: 1 / 0  # type: ignore[method-assign]

    assert client.store(TOKENS, some_kv(10)) == 0
    assert server.wait_for(Abandon).lease
    assert server.all(Commit) == []


def test_a_failed_read_gives_the_blocks_back(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    client._adapter(4).scatter = lambda *_: 1 / 0  # type: ignore[method-assign]

    assert not any(fetched(client)[0])
    assert server.wait_for(Return).delivered_chunks == 0


def test_release_and_clear(client: CacheClient) -> None:
    client.store(TOKENS, some_kv(10))

    assert client.release(TOKENS)
    assert client.clear() == [Cleared(backend="LocalCPUBackend", chunks=2)]


def test_who_the_server_is(client: CacheClient, server: FakeServer) -> None:
    assert (client.server.address, client.server.boot_id, client.server.version) == (
        str(server.address),
        "boot-1",
        "9.9",
    )
    assert client.status() == {"boot_id": "boot-1"}


def test_a_wrong_shape_reserves_nothing(client: CacheClient, server: FakeServer) -> None:
    assert client.store(TOKENS, some_kv(9)) == 0
    assert server.all(Reserve) == []
