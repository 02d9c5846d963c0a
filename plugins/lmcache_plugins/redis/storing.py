"""Many chunks over one connection, from where they are; each visible whole or not at all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from lmcache_core import ChunkKey, Frame
from lmcache_plugins.redis.record import WRITER_BYTES, Head, KeyNames, segment_count
from lmcache_plugins.redis.refusal import RefusedError
from lmcache_plugins.redis.resp import Refusal, command
from lmcache_plugins.redis.wire import Wire, count

_END = b"\r\n"
_GRACE_MS = 1000


class ChunkStore:
    """One chunk on its way to the server.

    Args:
        names: Of its head and segments.
        frame: Sent from where it is.
        value_bytes: Most bytes of a value.
        ttl_s: Seconds until it expires, 0 for never.
    """

    def __init__(self, names: list[bytes], frame: Frame, value_bytes: int, ttl_s: int) -> None:
        self.names = names
        self.lock = names[0] + b":w" if len(names) > 1 else b""
        """Key that keeps other writers away; none where one command stores all."""
        self.claimed = False
        """Whether this writer may store it."""
        self.refusal: Refusal | None = None
        """Why a part was not stored."""
        self.visible = False
        """Whether the head is stored."""
        self._frame = frame
        self._head = Head.new(len(frame), value_bytes)
        self.unread = len(names) if self._head.segments else 0
        """Replies to the body that are still to come."""
        self._ttl_ms = ttl_s * 1000
        self._begin_s = 0.0

    def claim(self, hold_ms: int) -> Iterator[bytes]:
        """Keep other writers away, for a time that this one cannot outlive; ask for the parts. Two replies."""
        if self.lock:
            yield command(b"SET", self.lock, self._head.writer, b"NX", b"PX", b"%d" % hold_ms)
        else:
            yield command(b"ECHO", b"OK")
        yield command(b"EXISTS", *self.names)

    def renewals(self) -> Iterator[bytes]:
        """Let a chunk that is there live on; as many replies."""
        if self._ttl_ms:
            for name in self.names[1:]:
                yield command(b"PEXPIRE", name, b"%d" % self._ttl_ms)
            yield command(b"PEXPIRE", self.names[0], b"%d" % self._head_ttl_ms(0))

    def body(self) -> Iterator[bytes | memoryview]:
        """All but the head; first a head that may be left is hidden."""
        self._begin_s = time.monotonic()
        if not self._head.segments:
            return
        yield command(b"UNLINK", self.names[0])
        part_bytes = self._head.value_bytes - WRITER_BYTES
        for index, name in enumerate(self.names[1:]):
            part = self._frame[index * part_bytes : (index + 1) * part_bytes]
            yield from self._set(name, self._head.writer, part, self._ttl_ms)

    def head(self) -> Iterator[bytes | memoryview]:
        """What makes the chunk visible. It expires a little before its segments."""
        inline = self._frame[:0] if self._head.segments else self._frame
        spent_ms = int((time.monotonic() - self._begin_s) * 1000)
        yield from self._set(self.names[0], self._head.pack(), inline, self._head_ttl_ms(spent_ms))

    def take(self, reply: int | bytes | Refusal | None) -> None:
        """Note a reply; the one to the head comes last."""
        if isinstance(reply, Refusal):
            self.refusal = self.refusal or reply
        elif self.unread == 0:
            self.visible = True
        self.unread = max(0, self.unread - 1)

    def _head_ttl_ms(self, spent_ms: int) -> int:
        if not self._ttl_ms or not self._head.segments:
            return self._ttl_ms
        return max(1, self._ttl_ms - spent_ms - self._ttl_ms // 100 - 1)

    @staticmethod
    def _set(name: bytes, front: bytes, rest: memoryview, ttl_ms: int) -> Iterator[bytes | memoryview]:
        words = 5 if ttl_ms else 3
        length_bytes = len(front) + len(rest)
        yield b"*%d\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s" % (words, len(name), name, length_bytes, front)
        yield rest
        if ttl_ms:
            yield b"\r\n$2\r\nPX\r\n$%d\r\n%d\r\n" % (len(str(ttl_ms)), ttl_ms)
        else:
            yield _END


def store(wire: Wire, names: KeyNames, items: Sequence[tuple[ChunkKey, Frame]], value_bytes: int, ttl_s: int) -> None:
    """Store the chunks that are not there; a chunk that lost a segment is not there.

    A chunk that another writer is storing at the moment is left to it: it has the same content.

    Raises:
        RefusedError: The server refused; nothing of that chunk stays.
        OSError: The connection broke; TimeoutError at the deadline.
    """
    chunks = [
        ChunkStore(names.all(key, segment_count(len(frame), value_bytes)), frame, value_bytes, ttl_s)
        for key, frame in items
    ]
    begun: list[ChunkStore] = []
    expected: deque[ChunkStore] = deque()  # whose reply comes next
    try_next = iter(_claim(wire, chunks))
    previous: ChunkStore | None = None
    refused = False
    while not refused:
        chunk = next(try_next, None)
        if chunk is not None:
            begun.append(chunk)
            wire.send(chunk.body(), replies=chunk.unread)
            expected.extend([chunk] * chunk.unread)
        if previous is not None:  # its replies came while this one's body went
            while previous.unread > 0:
                expected.popleft().take(wire.reply())
            refused = previous.refusal is not None
            if not refused:
                wire.send(previous.head(), replies=1)
                expected.append(previous)
        if chunk is None:
            break
        previous = chunk
    while expected:
        expected.popleft().take(wire.reply())
    _end(wire, chunks, begun)


def _claim(wire: Wire, chunks: Sequence[ChunkStore]) -> list[ChunkStore]:
    """Give the chunks that are not completely there and that nobody else is storing.

    One round trip. Chunks that are there get their whole time to live again.
    """
    hold_ms = max(0, int((wire.deadline - time.monotonic()) * 1000)) + _GRACE_MS
    requests = [request for chunk in chunks for request in chunk.claim(hold_ms)]
    wire.send(requests, replies=2 * len(chunks))
    for chunk in chunks:
        answer = wire.reply()
        chunk.claimed = answer == b"OK"  # None: another writer has it
        chunk.refusal = answer if isinstance(answer, Refusal) else None
        chunk.visible = count(wire) == len(chunk.names)
    renewals = [(chunk, request) for chunk in chunks if chunk.visible for request in chunk.renewals()]
    wire.send([request for _, request in renewals], replies=len(renewals))
    for chunk, _ in renewals:
        chunk.visible &= count(wire) == 1  # else it expired in between
    return [chunk for chunk in chunks if chunk.claimed and not chunk.visible]


def _end(wire: Wire, chunks: Sequence[ChunkStore], begun: Sequence[ChunkStore]) -> None:
    """Let others write, and remove the parts of chunks that did not become visible."""
    left = [name for chunk in chunks if chunk.claimed for name in (chunk.lock,) if name]
    left += [name for chunk in begun if not chunk.visible for name in chunk.names]
    if left:
        wire.send([command(b"UNLINK", *left)], replies=1)
        count(wire)
    refusal = next((chunk.refusal for chunk in chunks if chunk.refusal is not None), None)
    if refusal is not None:
        raise RefusedError(refusal)
