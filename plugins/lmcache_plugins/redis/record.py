"""How a chunk lies in Redis.

```text
<prefix>:{<namespace>/<64 hex>}      head: 32 bytes; then the frame, if it fits into one value
<prefix>:{<namespace>/<64 hex>}:<i>  segment i: the writer's 8 bytes, then its part of the frame
```

The head is written last and names the rest. The writer's 8 random bytes are in the head and in each
segment, so that parts of two writers are never taken for one chunk. The braces keep a chunk's keys
on one node of a cluster. Values stay just below 1 MiB: Redis is several times slower with larger
ones, and a value of exactly 1 MiB would take 1.25 MiB of the server's memory.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from lmcache_core import ChunkKey, KeyNamespace

_HEAD = struct.Struct("<8sQII8s")
_MAGIC = b"lmcache1"
HEAD_BYTES = _HEAD.size
WRITER_BYTES = 8
VALUE_BYTES = 1024 * 1024 - 64
"""Most bytes of one value."""


@dataclass(frozen=True, slots=True)
class Head:
    """The value that makes a chunk visible.

    Attributes:
        frame_bytes: Of the whole chunk.
        value_bytes: Most bytes of a value, as the writer cut the frame.
        segments: 0 where the frame lies behind the head.
        writer: 8 random bytes, new for each store.
    """

    frame_bytes: int
    value_bytes: int
    segments: int
    writer: bytes

    @classmethod
    def new(cls, frame_bytes: int, value_bytes: int) -> Head:
        """The head of a chunk that is about to be stored."""
        count = segment_count(frame_bytes, value_bytes)
        return cls(frame_bytes, value_bytes, count, secrets.token_bytes(WRITER_BYTES))

    def pack(self) -> bytes:
        """Give its 32 bytes."""
        return _HEAD.pack(_MAGIC, self.frame_bytes, self.value_bytes, self.segments, self.writer)

    @classmethod
    def unpack(cls, raw: bytes | bytearray) -> Head | None:
        """Read 32 bytes; None where they are no head, or one that contradicts itself."""
        if len(raw) != HEAD_BYTES:
            return None
        magic, frame_bytes, value_bytes, segments, writer = _HEAD.unpack(raw)
        if magic != _MAGIC or value_bytes <= HEAD_BYTES or segments != segment_count(frame_bytes, value_bytes):
            return None
        return cls(frame_bytes, value_bytes, segments, writer)


def segment_count(frame_bytes: int, value_bytes: int) -> int:
    """How many segments a frame takes; 0 where it fits behind the head."""
    if HEAD_BYTES + frame_bytes <= value_bytes:
        return 0
    return -(-frame_bytes // (value_bytes - WRITER_BYTES))


class KeyNames:
    """Makes the names of a chunk's keys.

    Args:
        prefix: First part of every key.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def head(self, key: ChunkKey) -> bytes:
        """Name of the key that makes a chunk visible."""
        return f"{self._prefix}:{{{key.namespace.name}/{key.digest.hex()}}}".encode()

    def exists(self, keys: Sequence[ChunkKey]) -> bytes:
        """Write requests that ask for each head; a prompt has hundreds, so that each microsecond counts."""
        parts = []
        namespace: KeyNamespace | None = None
        before = ""
        for key in keys:
            if key.namespace is not namespace:
                namespace = key.namespace
                length_bytes = len(self.head(key))
                before = f"*2\r\n$6\r\nEXISTS\r\n${length_bytes}\r\n{self._prefix}:{{{namespace.name}/"
            parts.append(f"{before}{key.digest.hex()}}}\r\n")
        return "".join(parts).encode()

    def all(self, key: ChunkKey, segments: int) -> list[bytes]:
        """Names of the head and of so many segments."""
        head = self.head(key)
        return [head, *(segment_name(head, index) for index in range(segments))]


def segment_name(head: bytes, index: int) -> bytes:
    """Name of a segment's key."""
    return b"%s:%d" % (head, index)
