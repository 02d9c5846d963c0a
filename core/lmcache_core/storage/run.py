"""The chunks of one request, and what a lookup found of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lmcache_core.codec.frame import FrameCodec
from lmcache_core.contracts.key import ChunkKey, KeyNamespace
from lmcache_core.memory.lease import Promise


class Request(NamedTuple):
    """Ties a retrieve to its lookup.

    Attributes:
        identity: Of the request among all tenants and ranks.
        name: As its caller gave it, for events; ``""`` for none.
    """

    identity: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """The chunks of a request.

    Attributes:
        namespace: Whose they are.
        digests: Of each, in order.
        codec: How their frames look.
        rest_tokens: Tokens in the last of them where it is not full; 0 where it is.
    """

    namespace: KeyNamespace
    digests: Sequence[bytes]
    codec: FrameCodec
    rest_tokens: int = 0

    def tokens(self, start: int, stop: int) -> int:
        """Tokens in the chunks from `start` to before `stop`."""
        full_tokens = self.namespace.chunk_tokens
        unfull = self.rest_tokens and start < stop == len(self.digests)
        return max(0, stop - start) * full_tokens - (full_tokens - self.rest_tokens if unfull else 0)

    def behind(self, chunks: int) -> ChunkRun:
        """The same without so many leading chunks; a chunk's digest tells all that comes before it."""
        return replace(self, digests=self.digests[chunks:]) if chunks else self

    def keys(self, start: int, stop: int) -> list[ChunkKey]:
        """Keys of some of the chunks; made only where a store behind tier 0 is asked."""
        return [ChunkKey(self.namespace, digest) for digest in self.digests[start:stop]]

    def request(self, request_id: str) -> Request:
        """Identity that ties a retrieve to its lookup: the caller's, or the chain's end."""
        if request_id:
            return Request(hashlib.sha256(self.namespace.seed + request_id.encode()).digest(), request_id)
        return Request(self.digests[-1] if self.digests else self.namespace.seed)

    def continues(self, digests: Sequence[bytes]) -> bool:
        """Whether one of this run and those chunks is a prefix of the other; digests are chained."""
        chunks = min(len(digests), len(self.digests))
        return chunks == 0 or digests[chunks - 1] == self.digests[chunks - 1]


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found: leading chunks in tier 0, leading chunks in all, and what holds them."""

    l1_chunks: int
    chunks: int
    promise: Promise[Any] | None = field(default=None, compare=False)
    parts: tuple[Found, ...] = field(default=(), compare=False)
    """Of each rank, where several were asked."""
