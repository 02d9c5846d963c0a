"""Connections that are slow, frozen or strange."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.talker import PATIENCE_S, READY

from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.spare import SpareFiles
from lmcache_core.server.switchboard import Switchboard
from lmcache_core.server.zmtp import WELCOME, Heard, frame
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES

HOARD_BYTES = 8 * MOST_MESSAGE_BYTES
ME = f"process {os.getpid()} of user {os.getuid()}"


class Clock:
    """Goes on when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tally() -> ServerTally:
    return ServerTally()


@pytest.fixture
def board(folder: Path, clock: Clock, tally: ServerTally) -> Iterator[Switchboard]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen()
    spare = SpareFiles("here", clock)
    board = Switchboard(listener, spare, tally, most_held_bytes=HOARD_BYTES, clock=clock)
    yield board
    board.close()
    spare.close()


@pytest.fixture
def come(folder: Path, board: Switchboard) -> Iterator[Callable[[], socket.socket]]:
    """Connect a client that says nothing yet."""
    made: list[socket.socket] = []

    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(str(folder / "s"))
        made.append(client)
        assert board.receive() is None
        assert client.recv(256) == WELCOME
        return client

    yield connect
    for client in made:
        client.close()


def hear(board: Switchboard) -> Heard:
    for _ in range(1000):
        heard = board.receive()
        if heard is not None:
            return heard
    raise AssertionError("nothing was heard")


def enter(board: Switchboard, client: socket.socket) -> bytes:
    """Get through the greeting; give the client's name."""
    client.sendall(WELCOME[:64] + READY + frame(b"hello"))
    heard = hear(board)
    assert heard.body == b"hello"
    return heard.sender


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


# -- answers that are not taken ------------------------------------------------------------


def test_answers_that_nobody_takes_are_counted_and_told_once_in_a_while(
    board: Switchboard,
    come: Callable[[], socket.socket],
    clock: Clock,
    tally: ServerTally,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = enter(board, come())
    answer = bytes(MOST_MESSAGE_BYTES)
    for _ in range(3):  # two fill what may wait, the first of them in part in the kernel
        board.say(name, answer)
    assert tally.dropped_answers == 0

    for _ in range(4):
        board.say(name, answer)
    waiting = len(board._by_name[name].waiting)
    clock.now_s += 11
    board.say(name, answer)

    assert tally.dropped_answers == board.describe()["dropped_answers"] == 5
    assert caplog.messages == [
        f"{ME} does not take its answers: {waiting} bytes of them wait, and {number} more have been dropped "
        "(at most one such line in 10 s)"
        for number in (1, 5)
    ]


def test_an_answer_that_is_taken_in_pieces_is_not_dropped(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally
) -> None:
    client = come()
    name = enter(board, client)
    answer = frame(bytes(MOST_MESSAGE_BYTES))
    for _ in range(5):
        board.say(name, answer[9:])
        size = 0
        while size < len(answer):
            size += len(client.recv(1 << 20))
            board.ring()
            board.receive()

    assert (tally.dropped_answers, board.describe()["held_bytes"]) == (0, 0)


# -- messages half sent --------------------------------------------------------------------

HALF_BYTES = 1 << 20


def leave_half(board: Switchboard, client: socket.socket) -> None:
    """Send the first half of a message, and wait until the board has it."""
    held_bytes = board.describe()["held_bytes"]
    half = frame(bytes(2 * HALF_BYTES))[:HALF_BYTES]
    sender = threading.Thread(target=client.sendall, args=(half,))
    sender.start()
    while board.describe()["held_bytes"] < held_bytes + len(half):
        board.receive()
    sender.join(PATIENCE_S)


def test_messages_half_sent_are_bounded_in_sum(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally, caplog: pytest.LogCaptureFixture
) -> None:
    most = HOARD_BYTES // HALF_BYTES
    first, second = come(), come()
    for client in (first, second):
        enter(board, client)
        leave_half(board, client)
    for _ in range(most - 2):
        client = come()
        enter(board, client)
        leave_half(board, client)
    assert tally.ended_connections == {}
    last = come()
    enter(board, last)
    last.sendall(frame(bytes(10))[:-1])
    board.receive()

    assert tally.ended_connections == {"memory": 1}
    (line,) = caplog.messages
    assert line == (
        f"the connection of {ME} is ended: messages half sent and answers not taken are {HOARD_BYTES + 11} bytes of "
        f"all connections, and its {HALF_BYTES} bytes have been there the longest (at most one such line in 10 s)"
    )
    assert first.recv(1) == b""
    last.sendall(b"\0")
    assert hear(board).body == bytes(10)
    assert board.describe()["held_bytes"] == (most - 1) * HALF_BYTES
    assert board.describe()["open"] == most


def test_a_busy_client_is_not_taken_for_one_that_is_stuck(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally
) -> None:
    busy, stuck = come(), come()
    for client in (busy, stuck):
        enter(board, client)
    busy.sendall(b"\0")  # a message begins before the other's does
    board.receive()
    leave_half(board, stuck)
    busy.sendall(b"\1a\0")  # it ends, and the next begins
    assert hear(board).body == b"a"
    for _ in range(HOARD_BYTES // HALF_BYTES - 2):
        client = come()
        enter(board, client)
        leave_half(board, client)
    last = come()
    enter(board, last)
    sender = threading.Thread(target=last.sendall, args=(frame(bytes(2 * HALF_BYTES)),))
    sender.start()
    assert len(hear(board).body) == 2 * HALF_BYTES
    sender.join(PATIENCE_S)

    assert tally.ended_connections == {"memory": 1}
    assert stuck.recv(1) == b""
    busy.sendall(b"\1b")
    assert hear(board).body == b"b"


def test_answers_that_wait_count_too(board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally) -> None:
    answer = bytes(MOST_MESSAGE_BYTES)
    clients = [come() for _ in range(HOARD_BYTES // len(answer) + 1)]
    for client in clients:
        name = enter(board, client)
        board.say(name, answer)
        board.say(name, answer)

    assert tally.ended_connections == {"memory": 5}
    assert board.describe()["held_bytes"] <= HOARD_BYTES
    assert enter(board, come())


def test_a_client_of_libzmq_comes_back_after_its_connection_was_ended(
    folder: Path, board: Switchboard, tally: ServerTally, context: zmq.Context[Any]
) -> None:
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    with dealer:
        dealer.connect(f"ipc://{folder}/s")
        dealer.send(b"hello")
        name = hear(board).sender
        board._end(board._by_name[name], "memory", "as a test wants it")
        heard = None
        while heard is None or heard.sender == name:
            dealer.send(b"again")
            heard = board.receive()

    assert (heard.body, tally.ended_connections) == (b"again", {"memory": 1})


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
