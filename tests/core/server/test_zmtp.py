"""What is read of ZeroMQ's protocol, whatever comes and however it is cut."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.server.talker import READY

from lmcache_core.errors import WireError
from lmcache_core.server.zmtp import WELCOME, Heard, Reader, frame

GREETING = WELCOME[:64]
MORE = 1


def ready() -> Reader:
    reader = Reader(b"7")
    assert heard(reader, GREETING + READY) == []
    assert reader.is_ready
    return reader


def heard(reader: Reader, data: bytes, answers: list[bytes] | None = None) -> list[Heard]:
    found: list[Heard] = []
    reader.take(data, found.append, [] if answers is None else answers)
    return found


@given(st.lists(st.binary(max_size=600), max_size=6), st.lists(st.integers(1, 80), min_size=1, max_size=8))
def test_messages_are_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = GREETING + READY + b"".join(frame(body) for body in bodies)
    reader, found, start, turn = Reader(b"7"), [], 0, 0
    while start < len(stream):
        size = cuts[turn % len(cuts)]
        found += heard(reader, stream[start : start + size])
        start, turn = start + size, turn + 1

    assert found == [Heard(b"7", body, 1) for body in bodies]
    assert reader.held_bytes == 0


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_whatever_comes_is_a_message_or_a_wire_error(data: bytes, is_ready: bool) -> None:
    reader = ready() if is_ready else Reader(b"7")
    found: list[Heard] = []
    with contextlib.suppress(WireError):
        reader.take(data, found.append, [])

    assert sum(len(one.body) for one in found) + reader.held_bytes <= len(data)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_what_was_whole_before_a_bad_frame_is_given(bodies: list[bytes]) -> None:
    found: list[Heard] = []
    reader = ready()
    with pytest.raises(WireError, match="a frame of 1 bytes with flags 128 came"):
        reader.take(b"".join(map(frame, bodies)) + b"\x80\x01", found.append, [])

    assert found == [Heard(b"7", body, 1) for body in bodies]


def test_a_message_of_several_frames_says_so() -> None:
    assert heard(ready(), frame(b"a", MORE) + frame(b"b", MORE) + frame(b"c") + frame(b"d")) == [
        Heard(b"7", b"a", 3),
        Heard(b"7", b"d", 1),
    ]


def test_what_is_held_is_what_has_come_of_a_message() -> None:
    reader = ready()
    heard(reader, frame(b"a" * 1000, MORE))
    assert reader.held_bytes == 1000
    heard(reader, frame(b"b" * 50)[:-1])
    assert reader.held_bytes == 1000 + 2 + 49
    heard(reader, b"b")
    assert reader.held_bytes == 0


def test_a_heartbeat_is_answered() -> None:
    answers: list[bytes] = []
    assert heard(ready(), frame(b"\x04PING\0\0abc", 4), answers) == []

    assert answers == [frame(b"\x04PONGabc", 4)]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "what came is no greeting of ZeroMQ"),
        (
            GREETING[:10] + b"\x01" + GREETING[11:],
            "the other side speaks an older protocol of ZeroMQ, or one with a pas",
        ),
        (
            GREETING[:12] + b"PLAIN" + GREETING[17:],
            "the other side speaks an older protocol of ZeroMQ, or one with a pas",
        ),
        (GREETING + frame(b"x"), "a message came before the other side was ready"),
        (GREETING + READY + b"\x02" + b"\xff" * 8, "a frame of 18446744073709551615 bytes with flags 2 came"),
        (GREETING + READY + b"\x80\x01", "a frame of 1 bytes with flags 128 came"),
        (GREETING + frame(b"\x05ERROR\x01x", 4), "the other side refused the connection"),
    ],
)
def test_a_stranger_is_named(said: bytes, why: str) -> None:
    with pytest.raises(WireError) as caught:
        heard(Reader(b"7"), said)

    assert str(caught.value).startswith(why)
