"""Connections that are slow, frozen or strange."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.switched import ME, Clock, enter, hear
from tests.core.server.talker import PATIENCE_S

from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.switchboard import Switchboard
from lmcache_core.server.zmtp import WELCOME, frame
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES


def test_a_frozen_client_neither_delays_nor_costs_without_end(
    board: Switchboard, come: Callable[[], socket.socket]
) -> None:
    client = come()
    name = enter(board, client)
    answer = bytes(MOST_MESSAGE_BYTES)
    for _ in range(20):
        board.say(name, answer)

    client.sendall(frame(b"thawed"))
    size = 0
    while size < 2 * len(frame(answer)):  # whole messages, one behind the other
        part = client.recv(1 << 20)
        size += len(part)
        board.receive()
    assert board.describe()["open"] == 1
    waiting = board._by_name[name].waiting
    assert len(waiting) <= 3 * len(answer)


def test_what_a_frozen_client_missed_is_whole_messages(
    folder: Path, board: Switchboard, context: zmq.Context[Any]
) -> None:
    dealer = context.socket(zmq.DEALER)
    dealer.linger, dealer.rcvtimeo, dealer.rcvhwm = 0, int(PATIENCE_S * 1000), 1
    with dealer:
        dealer.connect(f"ipc://{folder}/s")
        dealer.send(b"hello")
        name = hear(board).sender
        for number in range(64):
            board.say(name, bytes([number]) * (1 << 20))
        sizes = []
        for _ in range(8):
            while not dealer.poll(0):
                board.receive()
            got = dealer.recv()
            assert got == got[:1] * (1 << 20)
            sizes.append(got[0])

    assert sizes == list(range(8))


def test_an_answer_to_one_that_has_gone_is_dropped(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    client = come()
    name = enter(board, client)
    client.close()
    board.receive()

    board.say(name, b"too late")
    assert board.describe()["open"] == 0


def test_a_stranger_is_shown_the_door(
    board: Switchboard, come: Callable[[], socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    client = come()
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    board.receive()

    assert client.recv(1) == b""
    assert caplog.messages == [
        f"the connection of {ME} is ended: what came is no greeting of ZeroMQ (at most one such line in 10 s)"
    ]
    assert board.describe()["ended"] == {"malformed": 1}


def test_one_that_never_greets_is_let_go(
    board: Switchboard, come: Callable[[], socket.socket], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    silent, greeted = come(), come()
    enter(board, greeted)
    clock.now_s += 31
    board.tidy()

    assert silent.recv(1) == b""
    assert board.describe()["open"] == 1
    assert board.describe()["ended"] == {"silent": 1}
    assert caplog.messages == [
        f"the connection of {ME} is ended: it did not greet within 30 s (at most one such line in 10 s)"
    ]


def test_a_ring_is_heard_beside_messages(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    client = come()
    enter(board, client)
    board.ring()
    client.sendall(frame(b"a"))
    heard = [board.receive(), board.receive()]

    assert None in heard
    assert [one.body for one in heard if one is not None] == [b"a"]


def test_a_flood_keeps_no_other_waiting(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    flooder, other = come(), come()
    noise, name = enter(board, flooder), enter(board, other)
    flooder.sendall(frame(b"") * 5000)
    other.sendall(frame(b"one"))

    before = 0
    while (heard := hear(board)).sender != name:
        before += 1

    assert (heard.body, heard.sender != noise, before <= 2 * 64) == (b"one", True, True)
    assert sum(hear(board).sender == noise for _ in range(5000 - before)) == 5000 - before


def test_what_was_said_before_the_end_is_heard(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    client = come()
    name = enter(board, client)
    client.sendall(frame(b"last"))
    client.close()

    board.say(name, b"an answer that comes too late")

    assert hear(board).body == b"last"


def test_the_last_words_reach_those_who_read(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    frozen, reading = come(), come()
    names = enter(board, frozen), enter(board, reading)
    word = bytes(1 << 20)
    for name in names:
        board.say(name, word)
    got = bytearray()

    def read() -> None:
        while len(got) < len(frame(word)) and (part := reading.recv(1 << 16)):
            got.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    board.say_last(2.0)
    reader.join(PATIENCE_S)

    assert bytes(got) == frame(word)


def test_a_stranger_cannot_fill_the_memory(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    client = come()
    client.sendall(WELCOME[:64] + b"\x02" + (1 << 20).to_bytes(8, "big"))

    assert board.receive() is None

    assert client.recv(1) == b""


# -- what comes before nonsense -------------------------------------------------------------


def test_what_was_said_before_nonsense_is_answered(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally
) -> None:
    client = come()
    enter(board, client)
    client.sendall(frame(b"a") + frame(b"\x04PING\0\0x", 4) + frame(b"b") + b"\x80\1x" + frame(b"c"))
    for word in (b"a", b"b"):
        heard = hear(board)
        assert heard.body == word
        board.say(heard.sender, b"to " + word)
    board.ring()

    assert board.receive() is None
    said = b"".join(iter(lambda: receive(client), b""))
    assert said == frame(b"\x04PONGx", 4) + frame(b"to a") + frame(b"to b")
    assert tally.ended_connections == {"malformed": 1}
    assert board.describe()["open"] == 0


def receive(client: socket.socket) -> bytes:
    """What comes next; nothing at the end, which is a reset where something was never read."""
    try:
        return client.recv(1 << 16)
    except ConnectionResetError:
        return b""
