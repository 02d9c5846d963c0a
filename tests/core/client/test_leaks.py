"""What a client holds of the system, over deaths, restarts and its own end."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest
from tests.core.client.conftest import MakeClient
from tests.core.client.fake_server import FakeServer, until
from tests.core.client.test_calls import fetched
from tests.engine_calls import TOKENS, some_kv

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.tokens.hashing import token_array
from lmcache_core.wire.messages import Abandon, Bye, Lookup, Return


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def maps(server: FakeServer, boot_id: str) -> int:
    return sum(server.memory_name(boot_id) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_the_old_arena_is_let_go_of_after_a_restart(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    fetched(client)
    assert maps(server, "boot-1") == 1
    server.restart()

    assert until(lambda: client.server.boot_id == "boot-2")
    assert until(lambda: maps(server, "boot-1") == 0)
    assert maps(server, "boot-2") == 1


def test_restarts_leave_nothing_behind(client: CacheClient, server: FakeServer) -> None:
    def restart(boot_id: str) -> None:
        server.restart(boot_id)
        assert until(lambda: client.server.boot_id == boot_id)
        assert client.store(TOKENS, some_kv(10)) == 8
        assert any(fetched(client)[0])

    restart("boot-2")
    held = descriptors(), tasks()
    for number in range(3, 7):
        restart(f"boot-{number}")

    assert until(lambda: descriptors() <= held[0] and tasks() <= held[1])


def test_closing_gives_everything_back(make_client: MakeClient, server: FakeServer) -> None:
    make_client().close()
    gc.collect()
    server_side = len(server.lifelines)
    held = descriptors(), tasks(), threading.active_count()
    client = make_client()
    client.store(TOKENS, some_kv(10))
    client.lookup_async(TOKENS).result()
    client.close()
    del client

    assert server.wait_for(Bye, 2)
    opened = len(server.lifelines) - server_side  # a real server would close its end
    assert until(lambda: descriptors() - opened <= held[0] and tasks() <= held[1])
    assert threading.active_count() <= held[2]


def test_a_closed_client_does_nothing(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    client.close()

    assert not client.is_healthy()
    assert client.reason == "the client is closed"
    assert client.lookup(TOKENS) == 0
    assert client.retrieve(TOKENS, some_kv(10)).tolist() == [False] * 10
    assert not client.release(TOKENS)
    client.close()


def test_dropped_async_lookups_give_their_sockets_back(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    client.lookup_async(TOKENS).result()
    held = descriptors()
    server.on(Lookup, lambda _: None)
    for _ in range(20):
        client.lookup_async(TOKENS)

    server.wait_for(Lookup, 21)
    assert descriptors() <= held + 6


def test_dropped_reservations_and_fetches_go_back(client: CacheClient, server: FakeServer) -> None:
    access = client._remote
    chunk_format = access.format
    assert chunk_format is not None
    run = chunk_format.run(token_array(TOKENS), "", "")

    access.reserve(run, "", deadline=time.monotonic() + 5)
    assert server.wait_for(Abandon).lease
    access.fetch(run, "", skip_chunks=0, deadline=time.monotonic() + 5)
    assert server.wait_for(Return).delivered_chunks == 0


def test_closing_waits_for_a_copy_under_way(client: CacheClient, server: FakeServer) -> None:
    copying, go_on = threading.Event(), threading.Event()
    adapter = client._adapter(4)
    gather = adapter.gather

    def slowly(*arguments: object) -> None:
        copying.set()
        assert go_on.wait(10)
        gather(*arguments)  # type: ignore[arg-type]

    adapter.gather = slowly  # type: ignore[method-assign]
    kept: list[int] = []
    storing = threading.Thread(target=lambda: kept.append(client.store(TOKENS, some_kv(10))))
    storing.start()
    assert copying.wait(10)
    closing = threading.Thread(target=client.close)
    closing.start()
    assert until(lambda: client.reason == "the client is closed")
    assert server.all(Bye) == []
    go_on.set()
    storing.join()
    closing.join()

    assert kept == [8]
    assert server.wait_for(Bye)


def test_interrupts_give_the_blocks_back(client: CacheClient, server: FakeServer) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    client._adapter(4).gather = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        client.store(TOKENS, some_kv(10))

    assert server.wait_for(Abandon).lease


def test_a_kept_async_lookup_keeps_no_session(client: CacheClient, server: FakeServer) -> None:
    answered = client.lookup_async(TOKENS)
    answered.result()
    server.on(Lookup, lambda _: None)
    waiting = client.lookup_async(TOKENS)
    client.close()

    assert until(waiting.done)
    assert maps(server, "boot-1") == 0
    assert (answered.result(), waiting.result()) == (0, 0)
