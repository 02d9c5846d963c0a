"""The part of the Redis protocol (RESP 2) that a store needs, with bulk replies read into place.

redis-py reads a value into a buffer of its own and hands over a copy; here it lands in the caller's
memory. Nothing that a server says about lengths is trusted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_BUFFER_BYTES = 16 * 1024
_SCRATCH_BYTES = 64 * 1024
_SMALL_BYTES = 1024 * 1024  # INFO answers some 10 KiB
_LARGEST_BYTES = 4 * 1024 * 1024 * 1024
_ABSENT = -1
_DIGITS = 19  # of 2**63
_KINDS = b"+-:$"
MOST_DIGITS = _BUFFER_BYTES // 4
"""Most integers that `ReplyReader.digits` reads at once."""
_TLS_RECORDS = (0x15, 0x16)  # alert, handshake: what a TLS server answers to a plain client


class ProtocolError(Exception):
    """What came was no reply; the connection is of no use any more."""


class ConnectionLostError(Exception):
    """The server closed the connection."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error reply.

    Attributes:
        text: As the server wrote it, without the leading dash.
    """

    text: str

    @property
    def code(self) -> str:
        """First word, such as ``OOM``."""
        return self.text.partition(" ")[0]


class Landed(enum.Enum):
    """What became of a bulk reply that was to be read into place."""

    FILLED = "filled"
    ABSENT = "absent"
    MISFIT = "misfit"
    """Of another length; read and dropped."""


def command(*words: bytes) -> bytes:
    """Write one request."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def coalesce(pieces: Iterable[bytes | memoryview]) -> Iterable[bytes | bytearray | memoryview]:
    """Join small pieces, so that they cost one system call; large ones stay where they are."""
    small = bytearray()
    for piece in pieces:
        if len(piece) < _BUFFER_BYTES:
            small += piece
            continue
        if small:
            yield small
            small = bytearray()
        yield piece
    if small:
        yield small


class ReplyReader:
    """Reads replies from something that fills buffers, however the bytes are split.

    Args:
        receive_into: Fills the front of a non-empty buffer and gives the count; 0 at the end.
    """

    def __init__(self, receive_into: Callable[[memoryview], int]) -> None:
        self._receive_into = receive_into
        self._bytes = bytearray(_BUFFER_BYTES)
        self._buffer = memoryview(self._bytes)
        self._start = 0
        self._end = 0

    def reply(self) -> int | bytes | Refusal | None:
        """Read an integer, a status, an error, or a small bulk; None for an absent bulk.

        Raises:
            ProtocolError: It is none of these.
            ConnectionLostError: The end came first.
        """
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b":":
            return _integer(rest)
        if kind == b"+":
            return rest
        if kind == b"-":
            return Refusal(rest.decode(errors="replace"))
        length_bytes = _length(rest)
        if length_bytes == _ABSENT:
            return None
        if length_bytes > _SMALL_BYTES:
            raise ProtocolError(f"a reply of {length_bytes} bytes where a small one was due")
        value = bytearray(length_bytes)
        self._fill(memoryview(value))
        self._end_of_bulk()
        return bytes(value)

    def digits(self, count: int) -> bytes | None:
        """Read so many integers of one digit at once, as their digits; far faster than one by one.

        Args:
            count: 1 to `MOST_DIGITS`.

        Returns:
            None where one of them is something else; then none is read. It does not wait for more
            than will come, as no reply is shorter.

        Raises:
            ConnectionLostError: The end came first.
        """
        length_bytes = count * 4  # ":1\r\n"
        while self._end - self._start < length_bytes:
            self._receive_more()
        window = bytes(self._bytes[self._start : self._start + length_bytes])
        digits = window[1::4]
        if window[0::4].strip(b":") or window[2::4].strip(b"\r") or window[3::4].strip(b"\n") or not digits.isdigit():
            return None
        self._start += length_bytes
        return digits

    def bulk_into(self, prefix: bytearray, out: memoryview) -> Landed | Refusal:
        """Read a bulk into two buffers, one behind the other; they are touched only if it fits.

        Raises:
            ProtocolError: It is no bulk.
            ConnectionLostError: The end came first; the buffers may be half filled.
        """
        line = self._line()
        if line[:1] == b"-":
            return Refusal(line[1:].decode(errors="replace"))
        if line[:1] != b"$":
            raise _unexpected(line)
        length_bytes = _length(line[1:])
        if length_bytes == _ABSENT:
            return Landed.ABSENT
        fits = length_bytes == len(prefix) + len(out)
        if fits:
            self._fill(memoryview(prefix))
            self._fill(out)
        else:
            self._drop(length_bytes)
        self._end_of_bulk()
        return Landed.FILLED if fits else Landed.MISFIT

    def skip(self) -> None:
        """Read a bulk or an error and forget it.

        Raises:
            ProtocolError: It is neither.
            ConnectionLostError: The end came first.
        """
        line = self._line()
        if line[:1] == b"-":
            return
        if line[:1] != b"$":
            raise _unexpected(line)
        length_bytes = _length(line[1:])
        if length_bytes != _ABSENT:
            self._drop(length_bytes)
            self._end_of_bulk()

    def _line(self) -> bytes:
        while True:
            found = self._bytes.find(b"\r\n", self._start, self._end)
            if self._end > self._start and self._bytes[self._start] not in _KINDS:
                raise _unexpected(bytes(self._bytes[self._start : self._end]))
            if found >= 0:
                line = bytes(self._bytes[self._start : found])
                self._start = found + 2
                return line
            if self._end - self._start == _BUFFER_BYTES:
                raise ProtocolError("a line without an end")
            self._receive_more()

    def _receive_more(self) -> None:
        left_bytes = self._end - self._start
        if left_bytes == 0 or self._end == _BUFFER_BYTES:  # start at the front again
            self._bytes[:left_bytes] = self._bytes[self._start : self._end]
            self._start, self._end = 0, left_bytes
        self._end += self._receive(self._buffer[self._end :])

    def _fill(self, out: memoryview) -> None:
        buffered = min(len(out), self._end - self._start)
        out[:buffered] = self._buffer[self._start : self._start + buffered]
        self._start += buffered
        while buffered < len(out):
            buffered += self._receive(out[buffered:])

    def _drop(self, length_bytes: int) -> None:
        scratch = memoryview(bytearray(min(length_bytes, _SCRATCH_BYTES)))
        while length_bytes > 0:
            part = min(length_bytes, len(scratch))
            self._fill(scratch[:part])
            length_bytes -= part

    def _end_of_bulk(self) -> None:
        end = bytearray(2)
        self._fill(memoryview(end))
        if end != b"\r\n":
            raise ProtocolError("a value does not end where it said")

    def _receive(self, out: memoryview) -> int:
        count = self._receive_into(out)
        if count == 0:
            raise ConnectionLostError("the server closed the connection")
        return count


def _integer(text: bytes) -> int:
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > _DIGITS:  # int() would take "1_0", " 1" and "+1" too
        raise ProtocolError(f"a reply with the number {text[:32]!r}")
    return int(text)


def _length(text: bytes) -> int:
    length_bytes = _integer(text)
    if not _ABSENT <= length_bytes <= _LARGEST_BYTES:
        raise ProtocolError(f"a reply of {length_bytes} bytes")
    return length_bytes


def _unexpected(line: bytes) -> ProtocolError:
    if line and line[0] in _TLS_RECORDS:
        return ProtocolError("an answer in TLS where plain Redis was due")
    return ProtocolError(f"a reply that starts with {line[:16]!r}")
