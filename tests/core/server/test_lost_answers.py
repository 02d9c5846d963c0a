"""An answer that no client can have read is counted, and what was lent in it is taken back."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable, Iterator

import pytest
from tests.core.server.served import Served, until
from tests.core.server.switched import HOARD_BYTES, enter, hear
from tests.core.server.talker import PATIENCE_S, READY, Talker, digests
from tests.memory_store import Gate

from lmcache_core.errors import WireError
from lmcache_core.metrics.server import ServerTally
from lmcache_core.server.loop import ControlLoop
from lmcache_core.server.switchboard import Switchboard
from lmcache_core.server.zmtp import WELCOME, frame
from lmcache_core.wire import messages as wire
from lmcache_core.wire.codec import Encoder
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES, Message

NONSENSE = b"\x80\x01x"
LONG = bytes(MOST_MESSAGE_BYTES)


# -- which are lost ------------------------------------------------------------------------


def lost(board: Switchboard) -> list[int]:
    return sorted(iter(board.next_lost, 0))


def test_one_to_nobody(board: Switchboard, tally: ServerTally) -> None:
    board.say(b"77", b"answer", 5)
    board.say(b"77", b"answer")

    assert (lost(board), tally.dropped_answers) == ([5], 2)


def test_those_that_wait_when_the_connection_ends(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally
) -> None:
    client = come()
    name = enter(board, client)
    board.say(name, b"read", 4)
    board.say(name, LONG, 5)  # sent in part
    board.say(name, b"short", 6)
    board.say(name, b"no lease")
    client.sendall(NONSENSE)
    board.receive()

    assert (lost(board), tally.dropped_answers) == ([5, 6], 3)


def test_those_of_a_client_that_hears_no_more(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally
) -> None:
    client = come()
    name = enter(board, client)
    client.sendall(frame(b"\x04PING\0\0x", 4) + frame(b"last"))
    assert hear(board).body == b"last"
    client.sendall(frame(b"unread"))
    client.close()
    board.say(name, b"finds out", 5)
    board.say(name, b"comes later", 6)

    assert (lost(board), tally.dropped_answers) == ([5, 6], 2)
    assert hear(board).body == b"unread"


def test_those_beyond_what_may_wait(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    name = enter(board, come())
    for lease in range(1, 6):
        board.say(name, LONG, lease)

    assert lost(board) == [4, 5]


def test_those_of_a_connection_that_is_ended_for_memory(board: Switchboard, come: Callable[[], socket.socket]) -> None:
    for lease in range(1, HOARD_BYTES // len(LONG) + 2):
        board.say(enter(board, come()), LONG, lease)

    assert board.describe()["ended"] == {"memory": 1}
    assert lost(board) == [1]


def test_what_the_protocol_itself_says_is_no_answer(
    board: Switchboard, come: Callable[[], socket.socket], tally: ServerTally
) -> None:
    client = come()
    name = enter(board, client)
    board.say(name, LONG)
    client.sendall(frame(b"\x04PING\0\0x", 4) + NONSENSE)
    board.receive()

    assert tally.dropped_answers == 1


def test_a_ring_tells_of_them(board: Switchboard) -> None:
    board.say(b"77", b"answer", 5)

    assert board._epoll.poll(0) == [(board._bell, select.EPOLLIN)]
    assert board.receive() is None


# -- and are taken back --------------------------------------------------------------------


@pytest.fixture
def line(served: Served, worker: Talker) -> Iterator[socket.socket]:
    """A second connection of the worker's, which reads nothing by itself."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(served.server.address.removeprefix("ipc://"))
        line.sendall(WELCOME[:64] + READY)
        yield line


def say(line: socket.socket, *messages: Message) -> None:
    line.sendall(b"".join(frame(Encoder().encode(message)) for message in messages))


def connections(served: Served) -> dict[str, int]:
    found: dict[str, int] = served.server.status()["connections"]
    return found


def test_what_a_call_gets_whose_connection_has_ended(
    served: Served, worker: Talker, line: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    worker.store("a", "b")
    assert served.rig.storage.flush(10)
    served.rig.local.clear()
    gate = served.rig.stores[0].fault = Gate("contains")
    say(line, worker.build(wire.Retrieve, digests=digests("a", "b")))
    assert gate.entered.wait(PATIENCE_S)
    line.sendall(NONSENSE)
    assert until(lambda: connections(served)["ended"] == {"malformed": 1})
    with caplog.at_level(logging.INFO, "lmcache_core.server.desk"):
        gate.open()

        assert until(lambda: connections(served)["dropped_answers"] == 1 and served.is_exact())
        assert until(
            lambda: (
                "session 1: 'worker' never got an answer; the 2 blocks lent in it are taken back "
                "(at most one such line in 10 s)" in caplog.messages
            )
        )

    assert worker.ping().session_known
    assert len(worker.retrieve("a", "b").offsets) == 2


def test_what_another_could_not_store_for_it(
    served: Served, worker: Talker, line: socket.socket, talk: Callable[[Served], Talker]
) -> None:
    served.status = lambda: {"long": "x" * (1 << 20)}
    say(line, worker.build(wire.Status))
    assert until(lambda: connections(served)["held_bytes"] > 0)
    say(line, worker.build(wire.Reserve, digests=digests("a", "b")))
    assert until(lambda: served.server.lease_counts() == (1, 0))
    line.sendall(NONSENSE)

    assert until(lambda: connections(served)["dropped_answers"] == 2 and served.is_exact())
    assert talk(served).enter("other").store("a", "b") == 2
    assert worker.ping().session_known


def test_what_one_asks_for_that_takes_nothing(served: Served, worker: Talker, line: socket.socket) -> None:
    served.status = lambda: {"long": "x" * (3 << 20)}
    say(line, *[worker.build(wire.Status) for _ in range(8)])
    asked = {"operation": "status", "outcome": "ok"}
    counted = served.rig.metrics.registry.get_sample_value
    assert until(lambda: counted("lmcache:server_calls_total", asked) == 8)
    worker.ping()  # behind the last of these answers
    before = connections(served)["dropped_answers"]
    assert before >= 4
    say(line, worker.build(wire.Reserve, digests=digests("a", "b")))

    assert until(lambda: connections(served)["dropped_answers"] == before + 1 and served.is_exact())
    assert worker.store("a", "b") == 2


def test_what_is_lent_in_an_answer_that_cannot_be_sent(
    served: Served, worker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.store("a")
    assert served.server._parts is not None
    loop: ControlLoop = served.server._parts.loop
    encode = loop._encode

    def refuse(answer: Message) -> bytes:
        if isinstance(answer, wire.Lent):
            raise WireError("it is too long")
        return encode(answer)

    monkeypatch.setattr(loop, "_encode", refuse)
    answer = worker.ask(wire.Retrieve, digests=digests("a"))

    assert isinstance(answer, wire.Refused)
    assert answer.message == "the answer cannot be sent: it is too long"
    assert served.is_exact()
