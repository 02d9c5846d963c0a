"""A chunk as it travels to a store: a fixed header and the payload, in one contiguous buffer.

```text
 0  8s   magic b"LMCFRAME"          48  4I   kv, layers, tokens, hidden
 8  H    version                    64  16s  xxh3-128 of the payload
10  H    header bytes (128)         80  32s  key digest
12  4x                             112  8x
16  16s  dtype, zero-padded        120  8s   xxh3-64 of bytes 0 to 120
32  Q    payload bytes
40  8s   layout fingerprint, first 8 bytes
```

Little-endian. Every field but the two checksums is known to the reader beforehand and compared, so
that no size in a header is ever trusted.
"""

from __future__ import annotations

import struct

import xxhash

from lmcache_core.contracts.key import FRAME_HEADER_BYTES
from lmcache_core.contracts.layout import KVLayout

HEADER_BYTES = FRAME_HEADER_BYTES

MAGIC = b"LMCFRAME"
VERSION = 1

_FIELDS = struct.Struct("<8sHH4x16sQ8s4I")
_PAYLOAD_CHECKSUM = slice(64, 80)
_DIGEST = slice(80, 112)
_SIGNED = slice(0, 120)
_HEADER_CHECKSUM = slice(120, 128)


class FrameCodec:
    """Writes and checks the frames of one layout and chunk size. Stateless after construction; any thread.

    Attributes:
        payload_bytes: KV bytes of one chunk.
        frame_bytes: Header and payload.
        shape: Of one chunk's KV, ``(kv, layers, tokens, hidden)``.
    """

    def __init__(self, layout: KVLayout, chunk_tokens: int) -> None:
        self.payload_bytes = layout.bytes_per_token * chunk_tokens
        self.frame_bytes = HEADER_BYTES + self.payload_bytes
        self.shape = layout.kv_shape(chunk_tokens)
        self._fixed = _FIELDS.pack(
            MAGIC,
            VERSION,
            HEADER_BYTES,
            layout.dtype.encode(),
            self.payload_bytes,
            layout.fingerprint.encode()[:8],
            *self.shape,
        )

    def payload(self, frame: memoryview) -> memoryview:
        """The KV bytes of a frame."""
        return frame[HEADER_BYTES:]

    def seal(self, frame: memoryview, digest: bytes) -> None:
        """Write header and checksums; the payload must be complete.

        Args:
            frame: `frame_bytes` long, writable.
            digest: 32 bytes of the chunk's key.
        """
        frame[: len(self._fixed)] = self._fixed
        frame[_PAYLOAD_CHECKSUM] = xxhash.xxh3_128_digest(frame[HEADER_BYTES:])
        frame[_DIGEST] = digest
        frame[112:120] = bytes(8)
        frame[_HEADER_CHECKSUM] = xxhash.xxh3_64_digest(frame[_SIGNED])

    def defect(self, frame: memoryview, digest: bytes) -> str | None:
        """Say why a frame must not be used, or None if it is whole and the one asked for.

        Returns:
            One of ``length``, ``magic``, ``version``, ``header``, ``shape``, ``key``, ``checksum``.
        """
        if len(frame) != self.frame_bytes:
            return "length"
        found = self._header_defect(frame)
        if found is None and frame[_DIGEST] != digest:
            return "key"
        if found is None and frame[_PAYLOAD_CHECKSUM] != xxhash.xxh3_128_digest(frame[HEADER_BYTES:]):
            return "checksum"
        return found

    def _header_defect(self, frame: memoryview) -> str | None:
        if frame[:8] != MAGIC:
            return "magic"
        if frame[8:10] != self._fixed[8:10]:
            return "version"
        if frame[_HEADER_CHECKSUM] != xxhash.xxh3_64_digest(frame[_SIGNED]):
            return "header"
        return None if frame[: len(self._fixed)] == self._fixed else "shape"
