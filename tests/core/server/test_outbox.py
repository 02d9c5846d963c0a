"""What waits to be sent, and what is lost of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.server.outbox import Outbox


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_what_is_sent_whole_is_not_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    box = Outbox()
    box.put(b"abc", 7, sent=1)
    box.put(b"de", 8)
    box.send(ours)

    assert theirs.recv(100) == b"bcde"
    assert (len(box), box.empty()) == (0, [])


def test_what_is_sent_in_part_is_lost_with_all_behind_it(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    box = Outbox()
    box.put(b"first", 7)
    box.put(bytes(8 << 20), 8)
    box.put(b"command", None)
    box.put(b"last", 0)
    box.send(ours)

    assert box.empty() == [8, None, 0]
    assert len(box) == 0


def test_it_costs_more_than_the_messages() -> None:
    box = Outbox()
    for _ in range(1000):
        box.put(b"abc", 0)

    assert len(box) == 1000 * (3 + 16)


class _Sink(socket.socket):
    """Takes so many bytes at a time as it is told."""

    takes: int

    def send(self, data: object, flags: int = 0, /) -> int:  # type: ignore[override] # any buffer
        return min(self.takes, len(memoryview(data)))  # type: ignore[arg-type] # any buffer


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=20),
    st.integers(0, 19),
    st.lists(st.integers(0, 30), max_size=20),
)
def test_however_it_is_taken_the_rest_is_known(sizes: list[int], before: int, takes: list[int]) -> None:
    sent = min(before, sizes[0] - 1)
    box = Outbox()
    for lease, size in enumerate(sizes):
        box.put(bytes(size), lease, sent=sent if lease == 0 else 0)
    total = sum(sizes)
    with _Sink() as sink:
        for sink.takes in takes:
            box.send(sink)
            sent = min(total, sent + sink.takes)

    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    assert box.empty() == [lease for lease, end in enumerate(ends) if end > sent]
