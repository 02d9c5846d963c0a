"""Just enough of Redis' protocol to put a reply of our own among a server's, in its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

_END = b"\r\n"
_LONGEST_LINE_BYTES = 64 * 1024  # Redis' own limit for a line of a request
_LONGEST_NAME_BYTES = 64
_SIMPLE = b"+-:_#,("
_SIZED = b"$=!"
_LISTS = b"*~>"
_PAIRS = b"%|"
_ASIDE = b">|"  # pushed messages and attributes answer no request


class StrangeBytesError(Exception):
    """Not RESP, or a part of it that is not known here."""


class RequestReader:
    """Finds where requests begin and end, and their command, in a stream of bytes.

    Holds back only the first few bytes of a request, until it knows the command.
    """

    def __init__(self) -> None:
        self._held = b""
        self._words_left = 0
        self._skip_bytes = 0

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bytes | None, bool]]:
        """Give ``(bytes, command, ends)`` in order; the command is with the first bytes of its request.

        Raises:
            StrangeBytesError: `take_held` has what is left.
        """
        data, at = self._held + piece, 0
        try:
            while at < len(data):
                end, name = self._body(data, at) if self._words_left else self._head(data, at)
                if end == at:
                    return
                begin, at = at, end
                yield data[begin:end], name, not self._words_left
        finally:
            self._held = data[at:]

    def take_held(self) -> bytes:
        """Give the bytes that came and were not given out yet."""
        held, self._held = self._held, b""
        return held

    def _head(self, data: bytes, at: int) -> tuple[int, bytes | None]:
        words, begin = _number(data, at, b"*")
        length, begin = (None, at) if words is None else _number(data, begin, b"$")
        if words is None or length is None:
            return at, None
        if words < 1 or not 0 <= length <= _LONGEST_NAME_BYTES:
            raise StrangeBytesError
        end = begin + length + len(_END)
        if len(data) < end:
            return at, None
        self._words_left = words - 1
        return end, data[begin : begin + length].upper()

    def _body(self, data: bytes, at: int) -> tuple[int, None]:
        if not self._skip_bytes:
            length, begin = _number(data, at, b"$")
            if length is None:
                return at, None
            self._skip_bytes = begin - at + length + len(_END)
        end = min(at + self._skip_bytes, len(data))
        self._skip_bytes -= end - at
        self._words_left -= not self._skip_bytes
        return end, None


class ReplyReader:
    """Finds where replies end in a stream of bytes."""

    def __init__(self) -> None:
        self._line = b""
        self._skip_bytes = 0
        self._left = [1]  # values that are still to come: of the reply, of its list, of the list in it
        self._aside = False

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bool]]:
        """Give ``(bytes, ends)`` in order; `ends` after the last byte of a reply to a request.

        Raises:
            StrangeBytesError: It is not known where they end.
        """
        begin = at = 0
        while at < len(piece):
            if self._skip_bytes:
                taken = min(self._skip_bytes, len(piece) - at)
                self._skip_bytes -= taken
                at += taken
                ended = not self._skip_bytes and self._finish()
            else:
                at, line = self._take_line(piece, at)
                ended = line is not None and self._take_value(line)
            if ended:
                aside, self._aside = self._aside, False
                yield piece[begin:at], not aside
                begin = at
        if begin < len(piece):
            yield piece[begin:], False

    def _take_line(self, piece: bytes, at: int) -> tuple[int, bytes | None]:
        newline = piece.find(b"\n", at)
        end = len(piece) if newline < 0 else newline + 1
        self._line += piece[at:end]
        if len(self._line) > _LONGEST_LINE_BYTES:
            raise StrangeBytesError
        if newline < 0:
            return end, None
        line, self._line = self._line, b""
        return end, line

    def _take_value(self, line: bytes) -> bool:
        kind = line[:1]
        if kind in _SIMPLE:
            return self._finish()
        count, _ = _number(line, 0, kind)
        if count is None or kind not in _SIZED + _LISTS + _PAIRS:
            raise StrangeBytesError
        if kind in _ASIDE and self._left == [1]:
            self._aside = True
        if kind in _SIZED:
            self._skip_bytes = count + len(_END) if count >= 0 else 0
            return count < 0 and self._finish()
        children = count * 2 if kind in _PAIRS else count
        if children <= 0:
            return self._finish()
        self._left.append(children)
        return False

    def _finish(self) -> bool:
        """Note the end of a value; True at the end of a whole reply."""
        while True:
            self._left[-1] -= 1
            if self._left[-1]:
                return False
            if len(self._left) == 1:
                self._left = [1]
                return True
            self._left.pop()


class Conversation:
    """One connection's requests and replies. Bytes of another protocol pass as they are.

    Args:
        answer: Gives the reply to a command instead of the server's, or None.
    """

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer = answer
        self._requests = RequestReader()
        self._replies = ReplyReader()
        self._expected: deque[bytes] = deque()  # empty for a reply of the server's
        self._answering: bytes | None = None
        self._strange = False

    def requests(self, piece: bytes) -> tuple[bytes, bytes]:
        """Take bytes of the client; give those for the server, and replies of ours that are due."""
        if self._strange:
            return self._requests.take_held() + piece, b""
        onward: list[bytes] = []
        try:
            for data, name, ends in self._requests.feed(piece):
                if name is not None:
                    self._answering = self._answer(name)
                if self._answering is None:
                    onward.append(data)
                if ends:
                    self._expected.append(self._answering or b"")
        except StrangeBytesError:
            self._strange = True
            onward.append(self._requests.take_held())
        return b"".join(onward), self._due()

    def replies(self, piece: bytes) -> bytes:
        """Take bytes of the server; give those for the client, with ours in their places."""
        if self._strange:
            return piece
        out: list[bytes] = []
        given_bytes = 0
        try:
            for data, ends in self._replies.feed(piece):
                given_bytes += len(data)
                out.append(data)
                if ends and self._expected:
                    self._expected.popleft()
                    out.append(self._due())
        except StrangeBytesError:
            self._strange = True
            out.append(piece[given_bytes:])
        return b"".join(out)

    def _due(self) -> bytes:
        due: list[bytes] = []
        while self._expected and self._expected[0]:
            due.append(self._expected.popleft())
        return b"".join(due)


def _number(data: bytes, at: int, kind: bytes) -> tuple[int | None, int]:
    """Read a line such as ``*3`` or ``$11``; None where it has not come completely."""
    if at < len(data) and data[at : at + 1] != kind:
        raise StrangeBytesError
    newline = data.find(_END, at)
    if newline < 0:
        if len(data) - at > _LONGEST_NAME_BYTES:
            raise StrangeBytesError
        return None, at
    digits = data[at + 1 : newline]
    if not digits.removeprefix(b"-").isdigit():
        raise StrangeBytesError
    return int(digits), newline + len(_END)
