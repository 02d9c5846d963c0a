"""LMCache's keys in our words: the same key gives the same one in every process and on every host."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from lmcache_core import ChunkKey, KeyNamespace


class UpstreamKey(Protocol):
    """As much of LMCache's ``CacheEngineKey`` as is needed."""

    model_name: str
    world_size: int
    worker_id: int
    dtype: object

    def to_string(self) -> str:
        """All of it, with the tags of the request."""


class KeyMapper:
    """Maps the keys of one LMCache engine. Any thread.

    What LMCache's key does not hold, the shape of the chunk and its length in tokens, is taken from the
    engine, so that two engines whose chunks differ never meet.

    Args:
        shapes: Of a full chunk, one for each group of layers.
        dtypes: Of the groups.
        chunk_tokens: Tokens in a full chunk.
        chunk_bytes: Of a full chunk.
    """

    def __init__(
        self, shapes: Sequence[Sequence[int]], dtypes: Sequence[object], chunk_tokens: int, chunk_bytes: int
    ) -> None:
        groups = [f"{_name(dtype)}{list(shape)}" for shape, dtype in zip(shapes, dtypes, strict=True)]
        self._layout = hashlib.sha256(f"lmcache/1 {groups}".encode()).hexdigest()[:16]
        self._chunk_tokens = chunk_tokens
        self._chunk_bytes = chunk_bytes
        self._namespaces: dict[tuple[str, int, int, str], KeyNamespace] = {}

    def map(self, key: UpstreamKey) -> ChunkKey:
        """Map one key."""
        identity = (key.model_name, key.world_size, key.worker_id, _name(key.dtype))
        namespace = self._namespaces.get(identity)
        if namespace is None:
            namespace = self._namespaces[identity] = self._namespace(*identity)
        return ChunkKey(namespace, hashlib.sha256(namespace.seed + key.to_string().encode()).digest())

    def _namespace(self, model_name: str, world_size: int, rank: int, dtype: str) -> KeyNamespace:
        return KeyNamespace(
            model_name=model_name,
            world_size=world_size,
            rank=rank,
            dtype=dtype,
            layout=self._layout,
            chunk_tokens=self._chunk_tokens,
            payload_bytes=self._chunk_bytes,
        )


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
