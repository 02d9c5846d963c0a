"""Token sequences to chained chunk digests."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

TokenArray: TypeAlias = "npt.NDArray[np.uint32]"

_TOKEN_BYTES = 4
_LAST_TOKEN = 0xFFFF_FFFF


def token_array(tokens: Any) -> TokenArray:
    """Cast token ids once to the type that is hashed: little-endian unsigned 32-bit.

    Args:
        tokens: One-dimensional array, tensor on the CPU, or sequence of whole numbers, 0 to 2^32 - 1.

    Raises:
        ValueError: A sentence naming what is wrong.
    """
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise ValueError(f"tokens must have one dimension, got shape {array.shape}")
    if array.size == 0:
        return np.empty(0, dtype="<u4")
    if array.dtype.kind not in "iu":
        raise ValueError(f"tokens must be whole numbers, got an array of {array.dtype}")
    if array.dtype.kind == "i" or array.dtype.itemsize > _TOKEN_BYTES:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high > _LAST_TOKEN:
            raise ValueError(f"tokens must be 0 to {_LAST_TOKEN}, got {low if low < 0 else high}")
    return np.ascontiguousarray(array, dtype="<u4")


def nearest_chunk_tokens(chunk_tokens: int, block_tokens: int) -> int:
    """Give the multiple of an engine's block size that is nearest to the chunk size wanted; at least one block."""
    return max(1, (chunk_tokens + block_tokens // 2) // block_tokens) * block_tokens


def chunk_digests(tokens: TokenArray, chunk_tokens: int, seed: bytes, *, unfull: bool = False) -> list[bytes]:
    """Digest every full chunk: ``digest[i] = SHA-256(digest[i - 1] + bytes of chunk i)``.

    The same in every process and on every host: no built-in ``hash``, fixed byte order. A rest
    shorter than a chunk has a digest only if `unfull`; it is no full chunk's, as fewer bytes are hashed.

    Args:
        tokens: From `token_array`.
        chunk_tokens: Tokens in a chunk, at least 1.
        seed: Stands in for the digest before the first; `KeyNamespace.seed`.
        unfull: Whether a rest shorter than a chunk is digested too.
    """
    sha256 = hashlib.sha256
    step = chunk_tokens * _TOKEN_BYTES
    raw = tokens.tobytes()
    digest = seed
    digests: list[bytes] = []
    end = len(raw) if unfull else len(raw) - step + 1
    for start in range(0, end, step):
        digest = sha256(digest + raw[start : start + step]).digest()
        digests.append(digest)
    return digests
