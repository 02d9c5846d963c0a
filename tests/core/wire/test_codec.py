"""Any bytes are a message or one error."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.errors import WireError
from lmcache_core.wire import messages
from lmcache_core.wire.codec import Encoder, answers, call_of, requests
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES, Answer, Found, Message, Ping, Request

REQUESTS = Request.__args__
ANSWERS = Answer.__args__


def value_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type that travel."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**64 - 1),
        float: st.floats(allow_nan=False),
        str: st.text(max_size=20),
        bytes: st.binary(max_size=80),
        bool: st.booleans(),
    }
    if kind in plain:
        return plain[kind]
    if get_origin(kind) is not tuple:
        return example_of(kind)
    parts = get_args(kind)
    if parts[-1] is Ellipsis:
        return st.lists(value_of(parts[0]), max_size=4).map(tuple)
    return st.tuples(*map(value_of, parts))


def example_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{name: value_of(found) for name, found in get_type_hints(kind).items() if name[0] != "_"})


def examples(kinds: tuple[type[Message], ...]) -> st.SearchStrategy[Message]:
    return st.one_of([example_of(kind) for kind in kinds])


@given(examples(REQUESTS))
def test_a_request_comes_back(message: Message) -> None:
    assert requests().decode(Encoder().encode(message)) == message


@given(examples(ANSWERS))
def test_an_answer_comes_back(message: Message) -> None:
    assert answers().decode(Encoder().encode(message)) == message


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_a_wire_error(frame: bytes) -> None:
    try:
        assert isinstance(requests().decode(frame), REQUESTS)
    except WireError:
        call_of(frame)


@given(examples(REQUESTS), st.data())
def test_a_damaged_request_is_a_request_or_a_wire_error(message: Message, data: st.DataObject) -> None:
    frame = bytearray(Encoder().encode(message))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
    try:
        assert isinstance(requests().decode(bytes(frame)), REQUESTS)
    except WireError:
        call_of(bytes(frame))


def test_a_truncated_request_is_a_wire_error() -> None:
    frame = Encoder().encode(Ping(call=1, session=2))

    with pytest.raises(WireError) as caught:
        requests().decode(frame[:-1])

    assert str(caught.value) == "no request: Input data was truncated"


def test_a_nest_of_arrays_is_a_wire_error() -> None:
    frame = b"\x9a\xa4Ping\x01\x02" + b"\x91" * 100_000

    with pytest.raises(WireError) as caught:
        requests().decode(frame)

    assert str(caught.value) == "no request: it is nested too deeply"


def test_a_long_frame_is_not_read() -> None:
    with pytest.raises(WireError) as caught:
        requests().decode(bytes(MOST_MESSAGE_BYTES + 1))

    assert str(caught.value) == "no request: 4194305 bytes are more than 4194304 bytes"


def test_a_long_message_is_not_written() -> None:
    with pytest.raises(WireError) as caught:
        Encoder().encode(messages.StatusReport(call=1, document=bytes(MOST_MESSAGE_BYTES)))

    assert str(caught.value) == "a StatusReport of 4194324 bytes is longer than 4194304 bytes"


def test_an_answer_is_no_request() -> None:
    with pytest.raises(WireError):
        requests().decode(Encoder().encode(Found(call=1, chunks=1, l1_chunks=1)))


def test_a_newer_clients_further_fields_are_passed_over() -> None:
    frame = msgspec.msgpack.encode(["Ping", 7, 8, {"of": "tomorrow"}, 9])

    assert requests().decode(frame) == Ping(call=7, session=8)


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        (msgspec.msgpack.encode(["Teleport", 7]), 7),
        (msgspec.msgpack.encode(["Teleport", "7"]), 0),
        (msgspec.msgpack.encode(["Teleport", True]), 0),
        (msgspec.msgpack.encode({"call": 7}), 0),
        (b"\xff", 0),
        (b"", 0),
        (b"\x91" * 100_000, 0),
    ],
)
def test_the_call_of_an_unknown_message_is_found_where_there_is_one(frame: bytes, call: int) -> None:
    assert call_of(frame) == call
