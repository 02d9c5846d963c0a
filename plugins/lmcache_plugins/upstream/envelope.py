"""A chunk of LMCache as it travels to one of our stores: a header and the chunk, padded to one length.

```text
 0  8s   magic b"LMCUPSTR"          32  16s  xxh3-128 of the chunk
 8  H    version                    48  32s  key digest
10  H    header bytes (128)         80  40x
12  4x                             120  8s   xxh3-64 of bytes 0 to 120
16  Q    bytes of a full chunk
24  Q    bytes of this chunk
```

Little-endian. What the reader knows beforehand is compared, and the rest is used only when the header's
own checksum fits, so that no damaged length is ever trusted.
"""

from __future__ import annotations

import struct

import numpy as np
import xxhash

HEADER_BYTES = 128
MAGIC = b"LMCUPSTR"
VERSION = 1

_FIELDS = struct.Struct("<8sHH4xQQ16s32s40x")
_CHECKSUM = slice(_FIELDS.size, HEADER_BYTES)


class Envelope:
    """Seals and opens chunks of one full size. Stateless after construction; any thread.

    Attributes:
        frame_bytes: Header and a full chunk.

    Args:
        full_bytes: Of a full chunk; a shorter one is padded.
    """

    def __init__(self, full_bytes: int) -> None:
        self._full_bytes = full_bytes
        self.frame_bytes = HEADER_BYTES + full_bytes

    def empty(self) -> memoryview:
        """Give memory for a frame, of any content."""
        return np.empty(self.frame_bytes, dtype=np.uint8).data

    def seal(self, frame: memoryview, chunk: memoryview, digest: bytes) -> None:
        """Copy a chunk into a frame and write the header; the padding stays as it is.

        Args:
            frame: `frame_bytes` long, writable.
            chunk: Bytes, one to `full_bytes`.
            digest: 32 bytes of the key.
        """
        copied = frame[HEADER_BYTES : HEADER_BYTES + len(chunk)]
        copied[:] = chunk
        # Of the copy: what is checked later is what was stored, whatever became of the original meanwhile.
        checksum = xxhash.xxh3_128_digest(copied)
        _FIELDS.pack_into(frame, 0, MAGIC, VERSION, HEADER_BYTES, self._full_bytes, len(chunk), checksum, digest)
        frame[_CHECKSUM] = xxhash.xxh3_64_digest(frame[: _FIELDS.size])

    def open(self, frame: memoryview, digest: bytes) -> memoryview | str:
        """Give the chunk in a frame, or say why it must not be used.

        Returns:
            The chunk's bytes, a part of `frame`; or one of ``length``, ``magic``, ``header``, ``version``,
            ``shape``, ``key``, ``checksum``.
        """
        if len(frame) != self.frame_bytes:
            return "length"
        magic, version, header_bytes, full_bytes, chunk_bytes, checksum, owner = _FIELDS.unpack(frame[: _FIELDS.size])
        chunk = frame[HEADER_BYTES : HEADER_BYTES + chunk_bytes]
        facts = {
            "magic": magic == MAGIC,
            "header": frame[_CHECKSUM] == xxhash.xxh3_64_digest(frame[: _FIELDS.size]),
            "version": (version, header_bytes) == (VERSION, HEADER_BYTES),
            "shape": full_bytes == self._full_bytes and 0 < chunk_bytes <= full_bytes,
            "key": owner == digest,
        }
        wrong = next((name for name, holds in facts.items() if not holds), "")
        if not wrong and xxhash.xxh3_128_digest(chunk) != checksum:
            wrong = "checksum"
        return wrong or chunk
