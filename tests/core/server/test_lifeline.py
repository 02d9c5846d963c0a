"""The lifeline hands out the arena, and sees deaths."""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.server.served import until

from lmcache_core.memory.arena import Arena
from lmcache_core.server.lifeline import TICKET_BYTES, TICKET_TIMEOUT_S, Lifeline
from lmcache_core.server.listener import SocketFile
from lmcache_core.wire.farewell import LAST_WORD

PATIENCE_S = 30.0
FORKING_CLIENT = """
import os, socket, sys, time
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.sendall(bytes.fromhex(sys.argv[2]))
line.recv(1)
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(60)
print(child, flush=True)
time.sleep(60)
"""


class Watched:
    """A lifeline, and what it told."""

    def __init__(self, folder: Path, arena: Arena | None) -> None:
        self.path = str(folder / "s.life")
        self.now_s = 0.0
        self.ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._file = SocketFile(folder / "s", "ipc://here")
        self.lifeline = Lifeline(
            self._file.listen(".life"),
            arena_fd=-1 if arena is None else arena.fd,
            on_end=self.ended.put,
            clock=lambda: self.now_s,
        )
        self.lifeline.start()

    def connect(self, ticket: bytes) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(PATIENCE_S)
        line.connect(self.path)
        line.sendall(ticket)
        return line

    def close(self) -> None:
        self.lifeline.stop()
        self._file.close()


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    made = Watched(folder, None)
    yield made
    made.close()


def test_the_holder_of_a_ticket_gets_the_arena(folder: Path) -> None:
    arena = Arena(8192, shared=True)
    watched = Watched(folder, arena)
    with watched.connect(watched.lifeline.expect(7)) as line:
        greeting, (fd,), _, _ = socket.recv_fds(line, 16, 4)
        with mmap.mmap(fd, 8192) as mapped:
            mapped[5000:5005] = b"hello"
        os.close(fd)
        assert watched.lifeline.is_attached(7)
    watched.close()

    assert greeting == b"\x01"
    assert bytes(arena.buffer[5000:5005]) == b"hello"


def test_without_an_arena_there_is_only_the_greeting(watched: Watched) -> None:
    with watched.connect(watched.lifeline.expect(7)) as line:
        assert socket.recv_fds(line, 16, 4)[:2] == (b"\x01", [])


def test_a_ticket_may_come_in_pieces(watched: Watched) -> None:
    ticket = watched.lifeline.expect(7)
    with watched.connect(ticket[:5]) as line:
        line.sendall(ticket[5:])
        assert line.recv(16) == b"\x01"


def test_a_wrong_ticket_gets_nothing(watched: Watched) -> None:
    watched.lifeline.expect(7)
    with watched.connect(bytes(TICKET_BYTES)) as line:
        assert line.recv(16) == b""
    assert not watched.lifeline.is_attached(7)


def test_a_ticket_is_good_once(watched: Watched) -> None:
    ticket = watched.lifeline.expect(7)
    with watched.connect(ticket) as first, watched.connect(ticket) as second:
        assert {first.recv(16), second.recv(16)} == {b"\x01", b""}


def test_the_end_of_a_client_is_told_at_once(watched: Watched) -> None:
    line = watched.connect(watched.lifeline.expect(7))
    line.recv(16)
    line.close()

    assert watched.ended.get(timeout=PATIENCE_S) == 7
    assert not watched.lifeline.is_attached(7)


def test_what_an_attached_client_says_is_passed_over(watched: Watched) -> None:
    with watched.connect(watched.lifeline.expect(7)) as line:
        line.recv(16)
        line.sendall(b"x" * 100)
        with watched.connect(watched.lifeline.expect(8)) as other:
            assert other.recv(16) == b"\x01"
        assert watched.lifeline.is_attached(7)


def test_a_connection_without_a_ticket_is_closed_in_time(watched: Watched) -> None:
    line = watched.connect(b"")
    assert until(lambda: len(watched.lifeline._visitors) == 1)
    watched.now_s += TICKET_TIMEOUT_S + 0.1
    watched.lifeline.forget(99)  # wakes it

    assert line.recv(16) == b""
    line.close()


def test_a_forgotten_session_is_cut_and_not_told(watched: Watched) -> None:
    with watched.connect(watched.lifeline.expect(7)) as line:
        line.recv(16)
        watched.lifeline.forget(7)
        assert line.recv(16) == b""
    assert watched.ended.empty()


def test_the_ticket_of_a_forgotten_session_is_worthless(watched: Watched) -> None:
    ticket = watched.lifeline.expect(7)
    watched.lifeline.forget(7)
    with watched.connect(ticket) as line:
        assert line.recv(16) == b""


def test_clients_see_the_end_of_the_server_and_its_last_word(folder: Path) -> None:
    watched = Watched(folder, None)
    with watched.connect(watched.lifeline.expect(7)) as line:
        line.recv(16)
        watched.close()
        assert line.recv(16) == LAST_WORD
        assert line.recv(16) == b""


def test_a_connection_without_a_ticket_gets_no_last_word(folder: Path) -> None:
    watched = Watched(folder, None)
    with watched.connect(b"") as line:
        assert until(lambda: len(watched.lifeline._visitors) == 1)
        watched.close()
        assert line.recv(16) == b""


def test_a_client_that_reads_nothing_does_not_hold_up_the_end(folder: Path) -> None:
    watched = Watched(folder, None)
    with watched.connect(watched.lifeline.expect(7)) as line:
        assert until(lambda: watched.lifeline.is_attached(7))
        (visitor,) = watched.lifeline._visitors.values()
        with contextlib.suppress(BlockingIOError):
            while True:
                visitor.connection.send(bytes(1 << 16), socket.MSG_DONTWAIT)
        watched.close()

        assert not watched.lifeline._thread.is_alive()
        line.recv(16)


def test_a_forked_child_does_not_hide_its_parents_death(watched: Watched) -> None:
    ticket = watched.lifeline.expect(7)
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING_CLIENT, watched.path, ticket.hex()], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.kill()
        assert watched.ended.get(timeout=PATIENCE_S) == 7
    finally:
        os.kill(child, 9)
        process.communicate()
