"""What one client does harms no other, whatever the client and whenever it comes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import msgspec
import pytest
from tests.core.server.served import Served, until
from tests.core.server.talker import PATIENCE_S, READY, WIRE_LAYOUT, Talker, digests
from tests.memory_store import Gate

from lmcache_core.server.desk import Desk
from lmcache_core.server.zmtp import WELCOME, frame
from lmcache_core.wire import messages as wire
from lmcache_core.wire.codec import Encoder


def test_a_chunk_evicted_just_before_it_is_lent_delays_nobody(
    served: Served, worker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("contains", "load")
    served.rig.stores[0].fault = gate
    monkeypatch.setattr(served.rig.storage, "is_resident", lambda _run, _request: True)

    worker.say(worker.build(wire.Retrieve, digests=digests("a")))
    answer = worker.hear()

    assert isinstance(answer, wire.Lent)
    assert (answer.lease, answer.offsets) == (0, ())
    assert not gate.entered.is_set()


def test_a_client_without_time_costs_the_store_no_trust(served: Served, worker: Talker) -> None:
    for number in range(20):
        answer = worker.lookup(number, timeout_s=-1.0)
        assert isinstance(answer, wire.Found)

    assert not served.rig.storage.tiers[0].breaker.is_open


def test_no_client_can_cut_the_arena_short(served: Served, worker: Talker) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(worker.arena_fd, 0)


def test_a_call_number_used_twice_is_remembered_once(served: Served, worker: Talker) -> None:
    worker.store("a")
    for _ in range(3):
        worker.ask(wire.Lookup, call=77, digests=(digests("a"),), requested_tokens=4, request_id="r")

    worker.die()

    assert until(served.is_exact)


def test_calls_before_nonsense_are_answered_then_the_connection_ends(served: Served) -> None:
    encode = Encoder().encode
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(PATIENCE_S)
        stranger.connect(served.server.address.removeprefix("ipc://"))
        pings = b"".join(frame(encode(wire.Ping(call, 0))) for call in (1, 2, 3))
        stranger.sendall(WELCOME[:64] + READY + pings + b"\x80\x01")
        said = b"".join(iter(lambda: stranger.recv(1 << 16), b""))

    pongs = [frame(encode(wire.Pong(call, served.server.boot_id, True, "", False))) for call in (1, 2, 3)]
    assert said == WELCOME + b"".join(pongs)
    counted = served.rig.metrics.registry.get_sample_value
    assert counted("lmcache:server_ended_connections_total", {"reason": "malformed"}) == 1
    assert served.server.status()["connections"]["ended"] == {"malformed": 1}


def test_answers_that_a_client_does_not_take_are_counted(served: Served) -> None:
    served.status = lambda: {"long": "x" * (3 << 20)}
    asked = b"".join(frame(Encoder().encode(wire.Status(call))) for call in range(8))
    counted = served.rig.metrics.registry.get_sample_value
    assert counted("lmcache:server_dropped_answers_total") == 0
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.settimeout(PATIENCE_S)
        deaf.connect(served.server.address.removeprefix("ipc://"))
        deaf.sendall(WELCOME[:64] + READY + asked)
        assert until(lambda: (counted("lmcache:server_dropped_answers_total") or 0) >= 4)

        assert served.server.status()["connections"]["held_bytes"] > 8 << 20


def test_whatever_a_part_raises_the_server_goes_on(
    served: Served, worker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = threading.Event()

    def leave(_desk: Desk) -> None:
        raised.set()
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Desk, "tidy", leave)
        assert raised.wait(10)

    assert worker.ping().healthy


def test_a_layout_beyond_all_numbers_is_refused_as_one(served: Served, talk: Callable[[Served], Talker]) -> None:
    talker = talk(served)
    talker.attach(talker.hello())
    wide = msgspec.structs.replace(WIRE_LAYOUT, num_layers=1 << 40)

    with pytest.raises(AssertionError, match="register: one chunk of this layout has more bytes than there can be"):
        talker.register(layout=wide)
