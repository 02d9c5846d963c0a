"""A server whose system or threads fail it, and one that ends while a client is in a copy."""

from __future__ import annotations

import errno
import os
import time

import pytest
import torch
from tests.core.app.conftest import MakeClient, MakeServer
from tests.core.app.test_server import store
from tests.engine_calls import until

from lmcache_core.server.loop import ControlLoop
from lmcache_core.tokens.hashing import token_array

OFTEN = {"ping_interval": 0.1, "ping_timeout": 0.05}


def test_memory_that_the_system_has_not_is_lent_to_nobody(
    make_server: MakeServer, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_fd: int, _start: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", none_left)
    server = make_server(extra_config=OFTEN)
    server.start()
    client = make_client()
    sentence = (
        "the system has not 10735616 bytes of memory for the arena (No space left on device); lower max_local_cpu_size"
    )

    assert until(lambda: server._populating.failure == sentence)
    assert store(client, 32) == 0
    assert client.reason == sentence
    assert until(lambda: not server.health.is_healthy())
    assert server.status()["health"]["reason"] == (
        f"check 'ThreadHealthCheck(critical)' fails: thread 'lmcache-arena-pages' died ({sentence}); "
        "restart the process; policy recompute"
    )


def test_a_dead_control_thread_makes_the_cache_unhealthy(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(extra_config=OFTEN)
    server.start()
    assert {"lmcache-server", "lmcache-lifeline"} <= {thread.name for thread in server.host.threads()}
    assert until(server.health.is_healthy)

    with monkeypatch.context() as patched:
        patched.setattr(ControlLoop, "is_alive", property(lambda _: False))
        server.health.wake()
        assert until(lambda: not server.health.is_healthy())

        assert server.status()["health"]["reason"] == (
            "check 'ThreadHealthCheck(critical)' fails: thread 'lmcache-server' died; restart the process; "
            "policy recompute"
        )


def test_threads_that_were_told_to_end_are_no_fault(make_server: MakeServer) -> None:
    server = make_server()
    server.start()
    server.stop()

    assert [thread.name for thread in server.host.threads() if thread.name.startswith("lmcache-server")] == []


def test_who_is_frozen_in_a_copy_shares_its_blocks_with_nobody(
    make_server: MakeServer, make_client: MakeClient
) -> None:
    server = make_server()
    server.start()
    client = make_client()
    store(client, 32)
    access = client._remote
    assert access.format is not None
    run = access.format.run(token_array(torch.arange(32)), "", "")

    with access.fetch(run, "", skip_chunks=0, deadline=time.monotonic() + 5.0) as lent:
        payloads = list(lent)
        before = [bytes(payload) for payload in payloads]
        server.stop()
        for block in server.host.storage.local.reserve(10_000, 4096):  # as a prefetch does that is still under way
            block.view[:] = b"\xff" * block.frame_bytes

        assert len(payloads) == 2
        assert [bytes(payload) for payload in payloads] == before


def test_a_lookup_of_every_rank_is_told_once(make_server: MakeServer, make_client: MakeClient) -> None:
    server = make_server()
    server.start()
    for rank in (0, 1):
        client = make_client(world_size=2, rank=rank)
        store(client, 32)
        assert client.lookup(torch.arange(32)) == 32

    counters = server.status()["counters"]

    assert (counters["requested_tokens"], counters["hit_tokens"]) == (32, 32)
