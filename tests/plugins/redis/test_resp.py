"""The reader of replies, fed with every kind of bytes in every kind of pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_plugins.redis.resp import (
    ConnectionLostError,
    Landed,
    ProtocolError,
    Refusal,
    ReplyReader,
    coalesce,
    command,
)

PREFIX = 8

text = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=40)
reply = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    text.map(str.encode),
    text.map(Refusal),
    st.none(),
    st.binary(max_size=70_000).map(bytearray),  # a bulk that is read into place
)
cuts = st.lists(st.integers(1, 40_000), min_size=1, max_size=20)


def feed(stream: bytes, sizes: list[int]) -> Callable[[memoryview], int]:
    """Give out a stream in pieces of these sizes, again and again."""
    position = 0
    turn = 0

    def receive_into(out: memoryview) -> int:
        nonlocal position, turn
        size = sizes[turn % len(sizes)]
        turn += 1
        piece = stream[position : position + min(size, len(out))]
        out[: len(piece)] = piece
        position += len(piece)
        return len(piece)

    return receive_into


def encode(value: object) -> bytes:
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, Refusal):
        return b"-%s\r\n" % value.text.encode()
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, bytearray):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b"+%s\r\n" % value


@given(st.lists(reply, max_size=12), cuts)
def test_replies_come_out_as_they_went_in(values: list[object], sizes: list[int]) -> None:
    reader = ReplyReader(feed(b"".join(encode(value) for value in values), sizes))

    for value in values:
        if isinstance(value, bytearray) and len(value) >= PREFIX:
            prefix, out = bytearray(PREFIX), bytearray(len(value) - PREFIX)
            assert reader.bulk_into(prefix, memoryview(out)) is Landed.FILLED
            assert prefix + out == value
        else:
            assert reader.reply() == value


@given(st.lists(st.binary(max_size=70_000), min_size=1, max_size=6), cuts)
def test_a_bulk_that_does_not_fit_is_dropped_and_the_next_is_read(values: list[bytes], sizes: list[int]) -> None:
    reader = ReplyReader(feed(b"".join(encode(bytearray(value)) for value in values) + b":7\r\n", sizes))

    for value in values:
        out = bytearray(b"x" * (len(value) + 1))
        assert reader.bulk_into(bytearray(), memoryview(out)) is Landed.MISFIT
        assert out == b"x" * (len(value) + 1)
    assert reader.reply() == 7


@given(st.lists(reply.filter(lambda value: not isinstance(value, int | bytes)), max_size=6), cuts)
def test_skipped_bulks_leave_no_trace(values: list[object], sizes: list[int]) -> None:
    reader = ReplyReader(feed(b"".join(encode(value) for value in values) + b":7\r\n", sizes))

    for _ in values:
        reader.skip()

    assert reader.reply() == 7


@given(st.text("0123456789", min_size=1, max_size=600), cuts)
def test_digits_are_read_at_once(text: str, sizes: list[int]) -> None:
    reader = ReplyReader(feed(b"".join(b":%s\r\n" % digit.encode() for digit in text) + b":77\r\n", sizes))

    assert reader.digits(len(text)) == text.encode()
    assert reader.reply() == 77


@given(st.lists(reply, min_size=1, max_size=6), cuts)
def test_what_is_no_row_of_digits_is_left_to_be_read(values: list[object], sizes: list[int]) -> None:
    stream = b"".join(encode(value) for value in values)
    reader = ReplyReader(feed(stream + b":77\r\n" * 10, sizes))

    digits = reader.digits(len(values) + 2)

    assert digits is None
    assert [reader.reply() for _ in values] == values


@given(st.binary(max_size=300), cuts, st.sampled_from(["reply", "bulk_into", "skip"]))
def test_garbage_ends_in_one_of_our_errors(stream: bytes, sizes: list[int], how: str) -> None:
    reader = ReplyReader(feed(stream, sizes))
    read = {
        "reply": reader.reply,
        "bulk_into": lambda: reader.bulk_into(bytearray(4), memoryview(bytearray(4))),
        "skip": reader.skip,
    }

    with pytest.raises((ProtocolError, ConnectionLostError)):
        deque(iter(read[how], "never"), maxlen=0)


@given(st.lists(reply, min_size=1, max_size=4), cuts, st.data())
def test_a_stream_that_is_cut_is_a_lost_connection(values: list[object], sizes: list[int], data: st.DataObject) -> None:
    stream = b"".join(encode(value) for value in values)
    reader = ReplyReader(feed(stream[: data.draw(st.integers(0, len(stream) - 1))], sizes))

    with pytest.raises(ConnectionLostError) as caught:
        [reader.reply() for _ in values]

    assert str(caught.value) == "the server closed the connection"


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "an answer in TLS where plain Redis was due"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a reply that starts with b'HTTP/1.1 400 Bad'"),
        (b"*2\r\n", "a reply that starts with b'*2\\r\\n'"),
        (b":1_0\r\n", "a reply with the number b'1_0'"),
        (b": 1\r\n", "a reply with the number b' 1'"),
        (b":\r\n", "a reply with the number b''"),
        (b"$-2\r\n", "a reply of -2 bytes"),
        (b"$9999999999\r\n", "a reply of 9999999999 bytes"),
        (b"$2000000\r\n", "a reply of 2000000 bytes where a small one was due"),
        (b"$1\r\nabc", "a value does not end where it said"),
        (b"+" + b"x" * 20_000, "a line without an end"),
    ],
)
def test_what_is_no_reply_is_named(stream: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        ReplyReader(feed(stream, [100_000])).reply()

    assert str(caught.value) == sentence


def test_a_command_is_written_in_resp() -> None:
    assert command(b"GET", b"k\r\n") == b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n"


def test_large_pieces_are_not_copied() -> None:
    large = memoryview(bytes(100_000))

    pieces = list(coalesce([b"a", b"b", large, b"c"]))

    assert [bytes(piece[:2]) for piece in pieces] == [b"ab", b"\0\0", b"c"]
    assert pieces[1] is large


@given(st.lists(st.binary(max_size=40_000), max_size=8))
def test_coalescing_changes_no_byte(pieces: list[bytes]) -> None:
    assert b"".join(coalesce(pieces)) == b"".join(pieces)
