"""How a client finds its server, loses it, and finds the next."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from tests.core.client.conftest import MakeClient
from tests.core.client.fake_server import FakeServer, until
from tests.engine_calls import TOKENS, some_kv
from tests.memory_store import LAYOUT

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.messages import Hello, Ping, Pong, RefusalCode, Refused, Register, Welcome


def errors(client: CacheClient) -> dict[tuple[str, str], float]:
    """What was counted: (operation, reason) to count."""
    return {
        (sample.labels["operation"], sample.labels["reason"]): sample.value
        for family in client.metrics.registry.collect()
        if family.name == "lmcache:request_errors"
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def test_an_absent_server_is_no_error(make_client: MakeClient, tmp_path: Path) -> None:
    client = make_client(ServerAddress(path=tmp_path / "none.sock"))

    assert not client.is_healthy()
    assert client.reason == f"no cache server answers at ipc://{tmp_path}/none.sock"
    assert client.chunk_tokens == 0
    assert client.store(TOKENS, some_kv(10)) == 0
    assert client.lookup(TOKENS) == 0
    assert client.lookup_async(TOKENS).result() == 0
    assert client.retrieve(TOKENS, some_kv(10)).tolist() == [False] * 10
    assert not client.release(TOKENS)
    assert client.clear() == []
    assert client.status() == {"error": f"no cache server answers at ipc://{tmp_path}/none.sock"}
    assert client.server.boot_id == ""


@pytest.mark.timing
def test_a_call_without_a_server_is_quick(make_client: MakeClient, tmp_path: Path) -> None:
    client = make_client(ServerAddress(path=tmp_path / "none.sock"))
    client.lookup(TOKENS)  # logs

    times = []
    for _ in range(200):
        began = time.perf_counter()
        client.lookup(TOKENS)
        times.append(time.perf_counter() - began)
    assert sorted(times)[100] < 0.001


def test_a_closed_port_is_an_absent_server(make_client: MakeClient) -> None:
    client = make_client(ServerAddress(port=1))

    assert client.reason == "no cache server answers at tcp://127.0.0.1:1"


def test_a_server_that_comes_later_is_found(make_client: MakeClient) -> None:
    server = FakeServer(LAYOUT)
    client = make_client(server.address)
    assert not client.is_healthy()
    with server:
        assert until(client.is_healthy)
        assert client.store(TOKENS, some_kv(10)) == 8


def test_the_next_call_after_a_restart_is_served(client: CacheClient, server: FakeServer) -> None:
    client.store(TOKENS, some_kv(10))
    server.restart()

    assert until(lambda: client.server.boot_id == "boot-2")
    assert client.lookup(TOKENS) == 0
    assert client.store(TOKENS, some_kv(10)) == 8
    assert len(server.all(Register)) == 2


def test_a_refused_session_is_opened_anew_within_the_same_call(client: CacheClient, server: FakeServer) -> None:
    def once(message: object) -> Refused:
        del server.overrides[type(message)]
        return Refused(message.call, RefusalCode.SESSION, "no such session", "boot-1")  # type: ignore[attr-defined]

    from lmcache_core.wire.messages import Reserve

    server.on(Reserve, once)

    assert client.store(TOKENS, some_kv(10)) == 8
    assert len(server.all(Hello)) == 2


def test_a_refused_async_lookup_is_made_anew(client: CacheClient, server: FakeServer) -> None:
    from lmcache_core.wire.messages import Lookup

    client.store(TOKENS, some_kv(10))

    def once(message: Lookup) -> Refused:
        del server.overrides[Lookup]
        return Refused(message.call, RefusalCode.SESSION, "no such session", "boot-1")

    server.on(Lookup, once)

    assert client.lookup_async(TOKENS).result() == 8


def test_a_ping_tells_of_a_restart_without_a_lifeline(server: FakeServer, make_client: MakeClient) -> None:
    server.on(Hello, lambda m: Welcome(m.call, 1, "9.9", (), server.boot_id, server.number(), b"", "", 0))
    server.on(Ping, lambda m: Pong(m.call, server.boot_id, healthy=True, reason="", session_known=True))
    client = make_client()
    assert client.server.boot_id == "boot-1"
    server.boot_id = "boot-2"

    assert until(lambda: client.server.boot_id == "boot-2")


def test_a_dead_server_is_noticed_without_a_call(client: CacheClient, server: FakeServer) -> None:
    server.die()

    assert until(lambda: not client.is_healthy(), 5.0)


def test_an_unhealthy_server_is_left_alone(client: CacheClient, server: FakeServer) -> None:
    server.healthy, server.reason = False, "the remote is down"

    assert until(lambda: not client.is_healthy())
    assert client.reason == "the remote is down"
    server.healthy, server.reason = True, ""
    assert until(client.is_healthy)


def test_a_refusal_for_health_counts_at_once(client: CacheClient, server: FakeServer) -> None:
    from lmcache_core.wire.messages import Lookup

    server.healthy = False
    server.on(Lookup, lambda m: Refused(m.call, RefusalCode.UNHEALTHY, "the remote is down", "boot-1"))

    assert client.lookup(TOKENS) == 0
    assert not client.is_healthy()
    assert errors(client) == {("lookup", "refused_unhealthy"): 1}


def test_a_silent_server_is_unhealthy_until_it_speaks(client: CacheClient, server: FakeServer) -> None:
    server.freeze()

    assert until(lambda: not client.is_healthy())
    assert client.reason == f"the cache server at {server.address} has not answered for 3 s"
    server.thaw()
    assert until(client.is_healthy)
    assert len(server.all(Hello)) == 1


# -- refusals that stay -----------------------------------------------------------


def refuse_layout(server: FakeServer) -> None:
    server.on(Register, lambda m: Refused(m.call, RefusalCode.LAYOUT, "kv layout: not this one", server.boot_id))


def test_a_refused_layout_is_told_once(
    server: FakeServer, make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_layout(server)
    with caplog.at_level(logging.WARNING):
        client = make_client()
        server.wait_for(Ping, 3)

    assert not client.is_healthy()
    assert client.reason == "kv layout: not this one"
    assert client.store(TOKENS, some_kv(10)) == 0
    assert [record.message for record in caplog.records if "kv layout" in record.message] == [
        "kv layout: not this one; everything is recomputed until it serves again"
    ]


def test_a_refused_layout_is_not_asked_again(server: FakeServer, make_client: MakeClient) -> None:
    refuse_layout(server)
    make_client()
    server.wait_for(Ping, 3)

    assert len(server.all(Register)) == 1


def test_another_server_is_asked_about_the_layout(server: FakeServer, make_client: MakeClient) -> None:
    refuse_layout(server)
    client = make_client()
    server.die()
    server.overrides.clear()
    server.boot_id = "boot-2"
    server.start()

    assert until(client.is_healthy)


def test_both_versions_are_named_when_they_do_not_meet(server: FakeServer, make_client: MakeClient) -> None:
    server.on(Hello, lambda m: Welcome(m.call, 9, "9.9", (), "boot-1", 1, b"", "", 0))

    assert make_client().reason == ("server lmcache-core 9.9 chose protocol 9, client lmcache-core 0.1.0 speaks 1 to 1")


def test_the_servers_sentence_about_versions_is_passed_on(server: FakeServer, make_client: MakeClient) -> None:
    server.on(Hello, lambda m: Refused(m.call, RefusalCode.PROTOCOL, "server X 1 speaks 2, client 3", "boot-1"))

    assert make_client().reason == "server X 1 speaks 2, client 3"


def test_frames_of_another_length_are_refused(server: FakeServer, make_client: MakeClient) -> None:
    server.frame_bytes += 64

    assert make_client().reason == (
        f"the cache server (9.9) frames a chunk in {server.frame_bytes} bytes, "
        f"this client (0.1.0) in {server.frame_bytes - 64}"
    )


@pytest.mark.parametrize("chunk_tokens", [0, -4, 6, 1 << 40])
def test_chunks_that_are_no_whole_blocks_are_refused(
    server: FakeServer, make_client: MakeClient, chunk_tokens: int
) -> None:
    server.chunk_tokens = chunk_tokens

    assert make_client(block_tokens=4).reason == (
        f"the cache server cuts chunks of {chunk_tokens} tokens, which are no whole blocks of 4"
    )


def test_another_product_is_no_cache_server(server: FakeServer, make_client: MakeClient) -> None:
    server.on(Hello, lambda _: b"+OK\r\n")

    assert make_client().reason.startswith("the cache server does not speak this protocol: ")


def test_chunks_of_another_size_after_a_restart(client: CacheClient, server: FakeServer) -> None:
    from lmcache_core.codec.frame import FrameCodec

    client.store(TOKENS, some_kv(10))
    server.chunk_tokens, server.frame_bytes = 2, FrameCodec(LAYOUT, 2).frame_bytes
    server.restart()

    assert until(lambda: client.chunk_tokens == 2)
    assert client.store(TOKENS, some_kv(10)) == 10
    assert client.lookup(TOKENS) == 10


def test_a_folder_that_is_mounted_elsewhere_is_found_there(
    server: FakeServer, make_client: MakeClient, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "mount"
    elsewhere.symlink_to(server.folder)
    server.lifeline_path = f"/of/the/servers/pod/{Path(server.lifeline_path).name}"
    client = make_client(ServerAddress(path=elsewhere / Path(str(server.address)).name))

    assert client.store(TOKENS, some_kv(10)) == 8
