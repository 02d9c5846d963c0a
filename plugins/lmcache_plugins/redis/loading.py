"""Many chunks over one connection, straight into their buffers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmcache_core import ChunkKey, LoadResult
from lmcache_plugins.redis.record import HEAD_BYTES, WRITER_BYTES, Head, KeyNames, segment_count, segment_name
from lmcache_plugins.redis.refusal import RefusedError
from lmcache_plugins.redis.resp import Landed, Refusal, command
from lmcache_plugins.redis.wire import Wire

_AHEAD_BYTES = (
    8 * 1024 * 1024
)  # asked for and not yet read: hides the round trip, and bounds the server's output buffer


@dataclass(frozen=True, slots=True)
class _Request:
    chunk: ChunkLoad
    index: int  # -1 for the head
    name: bytes
    answer_bytes: int


class ChunkLoad:
    """One chunk on its way into its buffer.

    Args:
        head_name: Key of its head.
        out: One frame long.
        value_bytes: Most bytes of a value.
    """

    def __init__(self, head_name: bytes, out: memoryview, value_bytes: int) -> None:
        self.result: LoadResult | None = None
        """None while it is on its way."""
        self._head_name = head_name
        self._out = out
        self._value_bytes = value_bytes
        self._part_bytes = value_bytes - WRITER_BYTES
        self._segments = segment_count(len(out), value_bytes)
        self._writer = b""

    def requests(self) -> Iterator[_Request]:
        """What to ask for. The number of segments follows from the buffer's length: one round trip."""
        inline_bytes = 0 if self._segments else len(self._out)
        yield _Request(self, -1, self._head_name, HEAD_BYTES + inline_bytes)
        for index in range(self._segments):
            yield _Request(self, index, segment_name(self._head_name, index), len(self._part(index)))

    def take(self, index: int, wire: Wire) -> None:
        """Read the answer to one request, in the order of the requests."""
        if self.result is not None:
            wire.skip()
        elif index < 0:
            self._take_head(wire)
        else:
            self._take_segment(index, wire)

    def _part(self, index: int) -> memoryview:
        return self._out[index * self._part_bytes : (index + 1) * self._part_bytes]

    def _take_head(self, wire: Wire) -> None:
        raw = bytearray(HEAD_BYTES)
        landed = wire.bulk_into(raw, self._out[:0] if self._segments else self._out)
        if landed is not Landed.FILLED:
            self.result = _judge(landed)
            return
        head = Head.unpack(raw)
        if head is None or (head.frame_bytes, head.value_bytes) != (len(self._out), self._value_bytes):
            self.result = LoadResult.CORRUPT
        elif not self._segments:
            self.result = LoadResult.HIT
        else:
            self._writer = head.writer

    def _take_segment(self, index: int, wire: Wire) -> None:
        writer = bytearray(WRITER_BYTES)
        landed = wire.bulk_into(writer, self._part(index))
        if landed is not Landed.FILLED:
            self.result = _judge(landed)
        elif writer != self._writer:
            self.result = LoadResult.CORRUPT
        elif index == self._segments - 1:
            self.result = LoadResult.HIT


def load(
    wire: Wire, names: KeyNames, keys: Sequence[ChunkKey], outs: Sequence[memoryview], value_bytes: int
) -> list[LoadResult]:
    """Load chunks.

    Raises:
        RefusedError: The server refused.
        OSError: The connection broke; TimeoutError at the deadline.
    """
    chunks = [ChunkLoad(names.head(key), out, value_bytes) for key, out in zip(keys, outs, strict=True)]
    waiting = (request for chunk in chunks for request in chunk.requests())
    flying: deque[_Request] = deque()
    flying_bytes = 0
    more = True
    while more or flying:
        if more and flying_bytes <= _AHEAD_BYTES // 2:
            batch = []
            for request in waiting:
                if request.chunk.result is None:  # else it is known to be no hit
                    batch.append(command(b"GET", request.name))
                    flying.append(request)
                    flying_bytes += request.answer_bytes
                    if flying_bytes >= _AHEAD_BYTES:
                        break
            else:
                more = False
            wire.send(batch, replies=len(batch))
        if flying:
            request = flying.popleft()
            flying_bytes -= request.answer_bytes
            request.chunk.take(request.index, wire)
    return [chunk.result or LoadResult.CORRUPT for chunk in chunks]


def _judge(landed: Landed | Refusal) -> LoadResult:
    if landed is Landed.ABSENT:
        return LoadResult.MISS  # of a segment: it was evicted; nothing is damaged
    if isinstance(landed, Refusal) and landed.code != "WRONGTYPE":
        raise RefusedError(landed)
    return LoadResult.CORRUPT
