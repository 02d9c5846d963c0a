"""What the collector of garbage finds of a client, in whatever thread it runs, never makes that thread wait."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.core.client.fake_server import FakeServer, until
from tests.core.client.test_pending import hold_back
from tests.engine_calls import TOKENS

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.client.leases import FillLease
from lmcache_core.client.sockets import CallSocket
from lmcache_core.wire.messages import Abandon


@pytest.fixture(autouse=True)
def only_when_told() -> Iterator[None]:
    """Collect what other tests left, and then nothing before the test says so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_a_ring(member: object) -> None:
    """Leave something to the collector: its last reference is a ring's."""
    ring: list[object] = [member]
    ring.append(ring)


def ends(call: Callable[[], Any]) -> bool:
    """Whether a call returns; it runs in a thread that may be left behind."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_a_lookup_that_outlived_its_session(how: str, client: CacheClient, server: FakeServer) -> None:
    hold_back(server)
    in_a_ring(client.lookup_async(TOKENS))
    if how == "closed":
        client.close()
    else:
        server.restart()
        assert until(lambda: client.server.boot_id == "boot-2")

    assert ends(gc.collect)


def test_a_lease_while_a_socket_is_made(
    client: CacheClient, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client._remote.link.session
    assert session is not None
    pool, make = session.pool, session.pool._context.socket
    taken: list[CallSocket] = []
    collected = threading.Event()
    in_a_ring(FillLease(session, 7))

    def collect_and_make(*arguments: Any) -> Any:
        monkeypatch.undo()
        gc.collect()
        collected.set()
        return make(*arguments)

    def take_until_one_is_made() -> None:
        while not collected.is_set():  # the client's own thread may have given one back
            taken.append(pool.take())

    monkeypatch.setattr(pool._context, "socket", collect_and_make)
    assert ends(take_until_one_is_made)
    assert server.wait_for(Abandon).lease == 7
    for socket in taken:
        pool.give(socket)
