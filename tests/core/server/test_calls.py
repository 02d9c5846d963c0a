"""Handshake, sessions, refusals: what is said about the server as a whole."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from tests.core.server.served import Served, until
from tests.core.server.talker import Talker, digests

from lmcache_core.errors import ConfigError
from lmcache_core.server import desk
from lmcache_core.wire import messages as wire
from lmcache_core.wire.codec import Encoder
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES, RefusalCode

Talk = Callable[[Served], Talker]
Serve = Callable[..., Served]


class Broken:
    """A lease that cannot be given back."""

    blocks = ()

    def release(self) -> None:
        raise RuntimeError("broken on purpose")


def refused(answer: object) -> tuple[str, str]:
    assert isinstance(answer, wire.Refused), answer
    return answer.code, answer.message


# -- handshake ----------------------------------------------------------------------


def test_the_welcome_tells_of_the_server(served: Served, talk: Talk) -> None:
    welcome = talk(served).hello()

    assert welcome.protocol == wire.PROTOCOL
    assert welcome.features == ("prefetch", "blocks")
    assert welcome.boot_id == served.server.boot_id
    assert welcome.arena_bytes == served.rig.arena.capacity_bytes
    assert welcome.lifeline == served.server.address.removeprefix("ipc://") + ".life"


def test_versions_that_do_not_meet_are_both_named(served: Served, talk: Talk) -> None:
    talker = talk(served)
    answer = talker.ask(
        wire.Hello,
        product=wire.PRODUCT,
        version="9.9",
        oldest_protocol=8,
        protocol=9,
        features=(),
        name="worker",
        pid=1,
    )

    assert refused(answer) == (
        RefusalCode.PROTOCOL,
        "server lmcache-core 0.1.0 speaks protocol 1, client lmcache-core 9.9 speaks 8 to 9",
    )
    assert served.sessions() == []


def test_a_restart_has_another_boot_id(serve: Serve, talk: Talk) -> None:
    first = serve()
    before = talk(first).ping()
    first.close()
    second = serve()

    assert talk(second).ping().boot_id != before.boot_id


def test_two_servers_never_share_an_address(served: Served, serve: Serve) -> None:
    with pytest.raises(ConfigError) as caught:
        serve(served.server.address)

    assert "another server, pid " in str(caught.value)
    assert f"serves at {served.server.address}; stop it or set server_address" in str(caught.value)


def test_a_stopped_servers_address_is_free_again(serve: Serve, talk: Talk) -> None:
    serve().close()

    assert talk(serve()).ping().healthy


def test_it_serves_on_a_port_of_loopback(
    serve: Serve, talk: Talk, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    served = serve("tcp://127.0.0.1:0")

    assert not served.server.address.endswith(":0")
    assert talk(served).enter().store("a") == 1


# -- sessions -------------------------------------------------------------------------


def test_a_ping_needs_no_session(served: Served, talk: Talk) -> None:
    assert talk(served).ping() == wire.Pong(1, served.server.boot_id, True, "", False)


def test_a_ping_says_whether_the_session_is_known(served: Served, worker: Talker) -> None:
    assert worker.ping().session_known


def test_a_ping_tells_why_the_cache_is_unhealthy(served: Served, worker: Talker) -> None:
    served.rig.healthy = False
    pong = worker.ping()

    assert (pong.healthy, pong.reason) == (False, "a store is down")


def test_a_request_without_a_session_is_refused(served: Served, talk: Talk) -> None:
    assert refused(talk(served).lookup("a")) == (
        RefusalCode.SESSION,
        "the server does not know this session: it restarted, or ended it",
    )


def test_bye_ends_the_session(served: Served, worker: Talker) -> None:
    worker.say(worker.build(wire.Bye))

    assert not worker.ping().session_known
    assert served.sessions() == []


def test_bye_frees_no_block_that_a_thread_may_still_copy(served: Served, worker: Talker) -> None:
    worker.reserve("a")
    worker.say(worker.build(wire.Bye))
    assert worker.ping().session_known
    assert served.server.lease_counts() == (1, 0)
    worker.die()

    assert until(lambda: served.sessions() == [] and served.is_exact())


def test_there_is_an_end_to_sessions(served: Served, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_SESSIONS", 1)
    talk(served).hello()
    with pytest.raises(AssertionError) as caught:
        talk(served).hello()

    assert "1 sessions are open already" in str(caught.value)


def test_a_client_that_says_nothing_more_is_dropped(
    served: Served, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "UNATTACHED_TIMEOUT_S", 0.05)
    talk(served).hello()

    assert until(lambda: served.sessions() == [])


def test_a_client_that_only_looks_up_is_kept_until_it_falls_silent(
    served: Served, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    talker = talk(served)
    talker.hello()
    talker.register()
    monkeypatch.setattr(desk, "UNATTACHED_TIMEOUT_S", 0.0)
    assert talker.ping().session_known
    monkeypatch.setattr(desk, "SILENT_TIMEOUT_S", 0.05)

    assert until(lambda: served.sessions() == [])


def test_a_client_on_the_lifeline_may_be_silent(
    served: Served, worker: Talker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = talk(served)
    other.hello("other")
    other.register()
    monkeypatch.setattr(desk, "SILENT_TIMEOUT_S", 0.0)

    assert until(lambda: [session["name"] for session in served.sessions()] == ["worker"])


def test_the_status_tells_of_each_session(served: Served, worker: Talker) -> None:
    worker.reserve("a", "b")
    (session,) = served.sessions()

    assert session["name"] == "worker"
    assert session["leases"] == 1
    assert session["leased_bytes"] == 2 * served.rig.codec.frame_bytes
    assert session["oldest_lease_s"] >= 0
    assert session["registrations"] == [{"model_name": "m", "world_size": 1, "ranks": [0], "chunk_tokens": 4}]
    json.dumps(served.server.status())


def test_the_status_does_not_tell_the_secret_of_a_session(served: Served, worker: Talker) -> None:
    assert str(worker.session) not in json.dumps(served.server.status())


def test_anyone_may_ask_for_the_status(served: Served, talk: Talk) -> None:
    answer = talk(served).ask_for(wire.StatusReport, wire.Status)

    assert json.loads(answer.document) == {"hello": "world"}


def test_a_status_that_takes_its_time_delays_nobody(served: Served, talk: Talk) -> None:
    asked, told = threading.Event(), threading.Event()

    def status() -> dict[str, Any]:
        asked.set()
        told.wait(10)
        return {}

    served.status = status
    slow, quick = talk(served), talk(served)
    slow.say(slow.build(wire.Status))
    assert asked.wait(10)
    quick.ping()
    told.set()

    assert isinstance(slow.hear(), wire.StatusReport)


# -- messages that are none -------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "call"),
    [(b"", 0), (b"\xff\xfe", 0), (msgspec.msgpack.encode(["Teleport", 77, 1]), 77), (bytes(MOST_MESSAGE_BYTES + 1), 0)],
)
def test_a_malformed_message_gets_an_error_and_harms_nobody(
    served: Served, worker: Talker, frame: bytes, call: int
) -> None:
    worker.socket.send(frame)
    answer = worker.hear()

    assert isinstance(answer, wire.Refused)
    assert (answer.code, answer.call) == (RefusalCode.MALFORMED, call)
    assert worker.store("a") == 1


def test_a_message_in_two_frames_is_refused(served: Served, worker: Talker) -> None:
    worker.socket.send_multipart([b"a", b"b"])

    assert refused(worker.hear()) == (RefusalCode.MALFORMED, "a message has one frame, and 2 came")


def test_a_client_that_never_reads_harms_nobody(served: Served, worker: Talker, talk: Talk) -> None:
    frozen = talk(served)
    ping = Encoder().encode(wire.Ping(1, 0))
    for _ in range(5000):
        frozen.socket.send(ping)

    assert worker.store("a") == 1


def test_a_client_cannot_pass_for_the_bell(served: Served, worker: Talker, context: zmq.Context[Any]) -> None:
    with context.socket(zmq.DEALER) as impostor:
        impostor.setsockopt(zmq.IDENTITY, b"lmcache-core bell")
        impostor.setsockopt(zmq.LINGER, 0)
        impostor.connect(served.server.address)
        for _ in range(100):
            impostor.send(b"x")
        assert worker.store("a") == 1


def test_a_number_of_tokens_that_is_none_is_refused(served: Served, worker: Talker) -> None:
    assert refused(worker.lookup("a", requested_tokens=-1)) == (RefusalCode.MALFORMED, "requested_tokens is -1")


def test_a_request_id_without_end_is_refused(served: Served, worker: Talker) -> None:
    assert refused(worker.lookup("a", request_id="r" * 2000)) == (
        RefusalCode.MALFORMED,
        "a request_id of 2000 characters is too long",
    )


# -- refusals ---------------------------------------------------------------------------


def test_an_unhealthy_cache_refuses(served: Served, worker: Talker) -> None:
    served.rig.healthy = False
    sentence = (RefusalCode.UNHEALTHY, "a store is down")

    assert refused(worker.lookup("a")) == sentence
    assert refused(worker.ask(wire.Reserve, digests=digests("a"))) == sentence
    assert refused(worker.ask(wire.Retrieve, digests=digests("a"))) == sentence


def test_what_was_lent_comes_back_while_the_cache_is_unhealthy(served: Served, worker: Talker) -> None:
    worker.store("a")
    lent, reserved = worker.retrieve("a"), worker.reserve("b")
    worker.lookup("a", request_id="r")
    served.rig.healthy = False
    worker.give_back(lent)

    assert worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease).count == 1
    assert worker.ask_for(wire.Done, wire.Release, digests=(digests("a"),), request_id="r").count == 1
    assert until(served.is_exact)


def test_a_fault_of_the_server_is_an_answer_and_one_line(
    served: Served, worker: Talker, caplog: pytest.LogCaptureFixture
) -> None:
    served.reason = "x"
    served.rig.storage.lookup_resident = None  # type: ignore[assignment,method-assign] # broken on purpose
    with caplog.at_level(logging.ERROR, "lmcache_core.server"):
        answers = [worker.lookup("a") for _ in range(3)]

    assert refused(answers[2]) == (
        RefusalCode.INTERNAL,
        "lookup failed in the server with TypeError; its log says more",
    )
    assert [record.message for record in caplog.records] == [
        "lookup failed in the server (at most one such line in 10 s)"
    ]
    assert served.rig.sample("server_calls_total", operation="lookup", outcome="failed") == 3
    assert worker.ping().session_known


def test_a_fault_while_a_session_ends_frees_the_rest(
    served: Served, worker: Talker, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    worker.store("a")
    worker.retrieve("a")
    worker.reserve("b")
    ((_, reading),) = served.server._parts.desk.sessions[worker.session].readings.items()
    lease, reading.lease = reading.lease, Broken()  # type: ignore[assignment] # on purpose
    worker.die()

    assert until(lambda: served.sessions() == [])
    assert until(lambda: served.rig.storage.claims == 0)
    assert until(lambda: "a part of an ended session could not be freed" in caplog.messages)
    lease.release()
