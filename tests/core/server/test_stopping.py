"""Servers that stop, and servers that lend nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.server.served import Served, socket_path, until
from tests.core.server.talker import Talker, digests

from lmcache_core.wire import messages as wire
from lmcache_core.wire.farewell import LAST_WORD
from lmcache_core.wire.messages import RefusalCode

Talk = Callable[[Served], Talker]
Serve = Callable[..., Served]


def refused(answer: object) -> tuple[str, str]:
    assert isinstance(answer, wire.Refused), answer
    return answer.code, answer.message


# -- a server that lends nothing -----------------------------------------------------------


def test_an_embedded_server_says_that_it_lends_nothing(serve: Serve, talk: Talk) -> None:
    welcome = talk(serve(lends=False)).hello()

    assert (welcome.features, welcome.arena_bytes) == (("prefetch",), 0)


def test_an_embedded_server_lends_no_block(serve: Serve, talk: Talk) -> None:
    served = serve(lends=False)
    talker = talk(served)
    assert talker.attach(talker.hello()) == b"\x01"
    talker.register()
    sentence = (
        RefusalCode.UNSUPPORTED,
        "this server lends no blocks; its own process stores and retrieves",
    )

    assert isinstance(talker.lookup("a"), wire.Found)
    assert refused(talker.ask(wire.Reserve, digests=digests("a"))) == sentence
    assert refused(talker.ask(wire.Retrieve, digests=digests("a"))) == sentence


def test_an_embedded_server_clears_its_engines_cache(serve: Serve, talk: Talk) -> None:
    talker = talk(serve(lends=False))
    assert talker.attach(talker.hello()) == b"\x01"
    talker.register()

    assert isinstance(talker.ask(wire.Clear), wire.ClearedTiers)


# -- stopping --------------------------------------------------------------------------------


def test_a_draining_server_takes_nothing_new(served: Served, worker: Talker, talk: Talk) -> None:
    reserved = worker.reserve("a")
    served.server.drain()
    sentence = (RefusalCode.UNHEALTHY, "the server is stopping")

    assert refused(worker.lookup("a")) == sentence
    assert refused(worker.ask(wire.Reserve, digests=digests("b"))) == sentence
    with pytest.raises(AssertionError, match="the server is stopping"):
        talk(served).hello()
    assert worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease).count == 1


def test_stopping_waits_for_what_is_being_filled(served: Served, worker: Talker) -> None:
    reserved = worker.reserve("a")
    stopped: list[bool] = []
    stopping = threading.Thread(target=lambda: stopped.append(served.server.stop(drain_s=10)))
    stopping.start()
    assert until(lambda: not worker.ping().healthy)
    assert worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease).count == 1
    stopping.join(10)

    assert stopped == [True]
    assert served.rig.local.chunks == 1


def test_what_is_new_is_refused_while_stopping_waits(served: Served, worker: Talker) -> None:
    reserved = worker.reserve("a")
    stopping = threading.Thread(target=lambda: served.server.stop(drain_s=10))
    stopping.start()
    assert until(lambda: not worker.ping().healthy)
    answer = refused(worker.ask(wire.Reserve, digests=digests("b")))
    worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease)
    stopping.join(10)

    assert answer == (RefusalCode.UNHEALTHY, "the server is stopping")


def test_stopping_does_not_wait_for_ever(served: Served, worker: Talker) -> None:
    worker.reserve("a")

    assert served.server.stop(drain_s=0.05) is False
    assert served.is_exact()


def test_clients_see_the_stop_on_their_lifeline(served: Served, worker: Talker) -> None:
    served.server.stop()

    assert worker.lifeline is not None
    assert worker.lifeline.recv(1) == LAST_WORD
    assert worker.lifeline.recv(1) == b""


def test_the_lifeline_lasts_until_the_last_answers_are_sent(
    served: Served, worker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = served.server._parts
    assert parts is not None
    say_last, attached = parts.endpoint.switchboard.say_last, []

    def look_and_say(linger_s: float) -> None:
        attached.append(parts.lifeline.is_attached(worker.session))
        say_last(linger_s)

    monkeypatch.setattr(parts.endpoint.switchboard, "say_last", look_and_say)
    served.server.stop()

    assert attached == [True]


def test_a_server_that_was_never_started_stops(folder: Path) -> None:
    served = Served(socket_path(folder))
    served.server.claim()
    served.close()

    assert [path.name for path in folder.iterdir()] == ["s.sock.lock"]


def test_the_families_go_with_the_server(served: Served) -> None:
    assert served.rig.metrics.registry.get_sample_value("lmcache:server_sessions") == 0
    served.server.stop()
    assert served.rig.metrics.registry.get_sample_value("lmcache:server_sessions") is None
