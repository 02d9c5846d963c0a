"""What late answers lend is given back, whichever socket they come on."""

from __future__ import annotations

import errno
import os

import pytest
import zmq
from tests.core.client.conftest import MakeClient
from tests.core.client.fake_server import FakeServer
from tests.core.client.test_pending import hold_back
from tests.engine_calls import TOKENS, some_kv

from lmcache_core.client.cache_client import CacheClient
from lmcache_core.client.failures import ServerCallError
from lmcache_core.client.sockets import SocketPool
from lmcache_core.wire.messages import Abandon, Forsake, Lookup, Reserve, Reserved


def pool_of(client: CacheClient) -> SocketPool:
    session = client._remote.link.session
    assert session is not None
    return session.pool


def owed(client: CacheClient) -> int:
    return sum(len(socket.owed) for socket in pool_of(client)._idle)


def test_a_forsaken_lookup_leaves_no_answer_to_wait_for(client: CacheClient, server: FakeServer) -> None:
    hold_back(server)  # a server answers no call that was forsaken
    client.lookup_async(TOKENS).cancel()
    server.wait_for(Forsake)

    assert owed(client) == 0


def test_a_lookup_is_forsaken_behind_itself(client: CacheClient, server: FakeServer) -> None:
    hold_back(server)
    for pending in [client.lookup_async(TOKENS) for _ in range(8)]:
        pending.cancel()
    server.wait_for(Forsake, 8)

    for forsaken in server.all(Forsake):
        place = server.received.index(forsaken)
        assert forsaken.lookup_call in [one.call for one in server.received[:place] if isinstance(one, Lookup)]


def test_an_answer_that_never_comes_keeps_no_other_from_being_given_back(
    client: CacheClient, server: FakeServer
) -> None:
    pool = pool_of(client)
    never, late = pool.take(), pool.take()
    never.owed.add(999_999_999)
    server.on(Reserve, lambda message: Reserved(message.call, 77, (0,), (0,)))
    server.freeze()
    late.send(Reserve(5_000_000, pool.session, 7, "", "", "", b""), 5_000_000)
    pool.give(late)
    pool.give(never)
    server.thaw()

    assert server.wait_for(Abandon).lease == 77


def test_a_system_out_of_files_is_a_call_that_came_to_nothing(
    client: CacheClient, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_context: object, _kind: int) -> None:
        raise zmq.ZMQError(errno.EMFILE)

    pool = pool_of(client)
    idle = [pool.take() for _ in range(len(pool._idle))]
    with monkeypatch.context() as patched:
        patched.setattr(zmq.Context, "socket", none_left)
        with pytest.raises(ServerCallError, match="no socket to the cache server can be made: Too many open files"):
            pool.take()
    for socket in idle:
        pool.give(socket)


def test_the_arena_is_not_inherited_by_other_programs(client: CacheClient, server: FakeServer) -> None:
    session = client._remote.link.session
    assert session is not None
    assert session.arena is not None
    client.store(TOKENS, some_kv(10))

    assert not os.get_inheritable(session.arena._descriptor)


def test_a_server_of_another_user_gets_nothing(
    make_client: MakeClient, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    client = make_client()

    assert client.reason == (
        f"the cache server at {server.address} runs as user {user} and this process as user {user + 1}; "
        "start the server as this user"
    )
    assert server.received == []
