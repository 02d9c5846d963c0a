"""From messages to the bytes of a frame and back."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from lmcache_core.errors import WireError
from lmcache_core.wire.messages import MOST_MESSAGE_BYTES, Answer, Message, Request

T = TypeVar("T")

_CALL = 1
"""Place of `call` in every message that has one, behind the tag."""

_MOST_REASON = 200
"""Characters of a reason that are told; a wrong tag is quoted in it at any length."""


class Encoder:
    """Writes messages. One for each thread or socket."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode

    def encode(self, message: Message) -> bytes:
        """Give the frame of a message.

        Raises:
            WireError: It would be longer than the other side reads.
        """
        frame = self._encode(message)
        if len(frame) > MOST_MESSAGE_BYTES:
            raise WireError(
                f"a {type(message).__name__} of {len(frame)} bytes is longer than {MOST_MESSAGE_BYTES} bytes"
            )
        return frame


class Decoder(Generic[T]):
    """Reads messages of one direction; whatever the bytes are, gives a message or raises `WireError`.

    One for each thread or socket. `requests` and `answers` make them.
    """

    def __init__(self, kinds: Any, what: str) -> None:
        self._decode = msgspec.msgpack.Decoder(kinds).decode
        self._what = what

    def decode(self, frame: bytes) -> T:
        """Read a frame.

        Raises:
            WireError: The frame is too long or is no message; says where it stops being one.
        """
        if len(frame) > MOST_MESSAGE_BYTES:
            raise WireError(f"{self._what}: {len(frame)} bytes are more than {MOST_MESSAGE_BYTES} bytes")
        try:
            return self._decode(frame)  # type: ignore[no-any-return] # typed by `requests` and `answers`
        except (msgspec.DecodeError, RecursionError, TypeError, ValueError) as error:  # TypeError: as in `call_of`
            raise WireError(f"{self._what}: {_reason_of(error)}") from error


def requests() -> Decoder[Request]:
    """Make a decoder for what clients send."""
    return Decoder(Request, "no request")


def answers() -> Decoder[Answer]:
    """Make a decoder for what servers send."""
    return Decoder(Answer, "no answer")


def call_of(frame: bytes) -> int:
    """Find the call's number in a frame that is no message we know, so that its sender need not wait; else 0."""
    if len(frame) > MOST_MESSAGE_BYTES:
        return 0
    try:
        head = msgspec.msgpack.decode(frame)
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):  # TypeError: older msgspec, odd keys
        return 0
    if isinstance(head, list) and len(head) > _CALL and type(head[_CALL]) is int:
        return int(head[_CALL])
    return 0


def _reason_of(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:_MOST_REASON]
