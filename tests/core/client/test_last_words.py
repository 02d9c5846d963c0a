"""A server that ends in order says so, and one that dies cannot: the client tells one from the other."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.cache_stage import CHUNK_TOKENS, LAYOUT, InProcess, OverTheWire, let_in, until
from tests.core.client.fake_server import FakeServer
from tests.core.client.test_connection import errors
from tests.engine_calls import TOKENS

from lmcache_core import connect, listen
from lmcache_core.client.cache_client import CacheClient
from lmcache_core.wire.farewell import STOPPING
from lmcache_core.wire.messages import Lookup, RefusalCode, Refused

RECOMPUTED = "everything is recomputed until it serves again"


@pytest.fixture
def stage() -> Iterator[OverTheWire]:
    with closing(OverTheWire(chunk_size=CHUNK_TOKENS, max_local_cpu_size=0.01)) as stage:
        yield stage


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """What the connection logged since the server was there."""
    lines = [(one.levelno, one.message) for one in caplog.records if one.name.startswith("lmcache_core.client")]
    return [line for line in lines if not line[1].startswith("connected to")]


def without_stopping(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """The same but for what a call or ping may have met in the moment before the end."""
    return [line for line in said(caplog) if STOPPING not in line[1]]


def test_a_server_that_ends_in_order_is_no_warning(stage: OverTheWire, caplog: pytest.LogCaptureFixture) -> None:
    address = stage.server.address
    with caplog.at_level(logging.INFO):
        stage.server.stop()

        assert until(lambda: any(RECOMPUTED in sentence for _, sentence in without_stopping(caplog)))

    assert without_stopping(caplog) == [
        (logging.INFO, f"the cache server at {address} has ended"),
        (logging.INFO, f"no cache server answers at {address}; the last one has ended; {RECOMPUTED}"),
    ]
    assert {level for level, _ in said(caplog)} == {logging.INFO}


def test_a_killed_server_has_died(stage: OverTheWire, caplog: pytest.LogCaptureFixture) -> None:
    address = stage.server.address
    with caplog.at_level(logging.INFO):
        stage.server.kill()
        silence = logging.WARNING, f"no cache server answers at {address}; the last one died; {RECOMPUTED}"
        assert until(lambda: silence in said(caplog))

    assert said(caplog)[0] == (logging.WARNING, f"the cache server at {address} died")
    assert {level for level, _ in said(caplog)} == {logging.WARNING}


def test_the_server_inside_an_engine_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="lmc-") as folder,
        closing(InProcess(chunk_size=CHUNK_TOKENS, max_local_cpu_size=0.01)) as stage,
    ):
        address = f"ipc://{Path(folder)}/l.sock"
        serving = listen(stage._manager, address)
        wanted = {"server_address": address}
        with connect(overrides=wanted, environ={}, layout=LAYOUT, model_name="m", ranks=(0,)) as client:
            assert let_in(client).is_healthy()
            with caplog.at_level(logging.INFO):
                serving.stop()
                assert until(lambda: any(RECOMPUTED in sentence for _, sentence in without_stopping(caplog)))

    assert (logging.INFO, f"the cache server at {address} has ended") in said(caplog)
    assert {level for level, _ in said(caplog)} == {logging.INFO}


def test_one_that_dies_after_another_has_ended_is_named_so(stage: OverTheWire) -> None:
    boot_id = stage.cache.server.boot_id
    stage.server.stop()
    stage.server.start()
    assert until(lambda: stage.cache.server.boot_id not in {"", boot_id})
    stage.server.kill()

    reason = f"no cache server answers at {stage.server.address}; the last one died"
    assert until(lambda: stage.cache.reason == reason)
    assert not stage.cache.is_healthy()


def test_an_older_server_ends_without_a_word(
    client: CacheClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        server.die()
        assert until(lambda: said(caplog) != [])

    assert said(caplog)[0] == (logging.WARNING, f"the cache server at {server.address} died")


@pytest.mark.parametrize(("word", "how"), [(b"\x02", "has ended"), (b"", "died"), (b"?", "died")])
def test_a_call_under_way_says_how_the_server_ended(
    client: CacheClient, server: FakeServer, caplog: pytest.LogCaptureFixture, word: bytes, how: str
) -> None:
    server.on(Lookup, lambda _: server.end_lifelines(word))

    assert client.lookup(TOKENS) == 0
    assert errors(client) == {("lookup", "server_gone"): 1}
    assert [one.message for one in caplog.records if one.name == "lmcache_core.engine"] == [
        f"lookup refused: the cache server {how} (at most one such line in 10 s)"
    ]


@pytest.mark.parametrize(("word", "how"), [(b"\x02", "has ended"), (b"", "died")])
def test_a_lookup_that_waits_says_how_the_server_ended(
    client: CacheClient, server: FakeServer, caplog: pytest.LogCaptureFixture, word: bytes, how: str
) -> None:
    server.on(Lookup, lambda _: None)
    pending = client.lookup_async(TOKENS)
    server.wait_for(Lookup)
    server.end_lifelines(word)

    assert until(pending.done)
    assert pending.result() == 0
    assert [one.message for one in caplog.records if one.name == "lmcache_core.engine"] == [
        f"lookup refused: the cache server {how} (at most one such line in 10 s)"
    ]


def test_a_server_that_stops_is_no_warning_while_it_drains(
    client: CacheClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.healthy, server.reason = False, STOPPING
    server.on(Lookup, lambda m: Refused(m.call, RefusalCode.UNHEALTHY, STOPPING, "boot-1"))
    with caplog.at_level(logging.INFO):
        client.lookup(TOKENS)
        assert until(lambda: said(caplog) != [])

    assert client.reason == "the server is stopping"
    assert said(caplog) == [(logging.INFO, f"the server is stopping; {RECOMPUTED}")]
