"""What clients leave in the server is counted, told and bounded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.core.server.switched import HOARD_BYTES, ME, Clock, enter, hear
from tests.core.server.talker import PATIENCE_S

from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.switchboard import Switchboard
from lmcache_core.server.zmtp import frame
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES

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
