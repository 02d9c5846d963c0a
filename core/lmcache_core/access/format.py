"""How one engine's chunks are cut, named and framed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lmcache_core.codec.frame import FrameCodec
from lmcache_core.contracts.key import KeyNamespace, hash_salt
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.storage.run import ChunkRun
from lmcache_core.tokens.hashing import TokenArray, chunk_digests

MakeNamespace: TypeAlias = Callable[[int, str, str], KeyNamespace]
"""Makes the key namespace of a rank, a tenant's salt hash and a variant's hash."""

_NAMESPACES_KEPT = 10_000
"""Tenants whose namespaces are remembered; those of one more are derived anew at each call."""


class ChunkFormat:
    """Turns tokens into runs of chunks. Any thread.

    Args:
        codec: Frames of this layout and chunk size.
        chunk_tokens: Tokens in one chunk.
        namespace: Makes namespaces.
        ranks: Whose chunks are meant; the first is the engine's own.
        save_unfull_chunk: Whether the rest of a sequence that fills no chunk is one too.
    """

    def __init__(
        self,
        codec: FrameCodec,
        *,
        chunk_tokens: int,
        namespace: MakeNamespace,
        ranks: Sequence[int],
        save_unfull_chunk: bool = False,
    ) -> None:
        self.codec = codec
        self.chunk_tokens = chunk_tokens
        self.save_unfull_chunk = save_unfull_chunk
        self._make = namespace
        self._ranks = tuple(ranks)
        self._known: dict[tuple[str, str], tuple[KeyNamespace, ...]] = {}

    @classmethod
    def of(
        cls,
        layout: KVLayout,
        *,
        model_name: str,
        world_size: int,
        ranks: Sequence[int],
        chunk_tokens: int,
        save_unfull_chunk: bool = False,
    ) -> ChunkFormat:
        """Derive the format of one model's chunks; the same in an engine, a client and a server."""
        codec = FrameCodec(layout, chunk_tokens)

        def namespace(rank: int, salt_hash: str, variant_hash: str) -> KeyNamespace:
            return KeyNamespace(
                model_name=model_name,
                world_size=world_size,
                rank=rank,
                dtype=layout.dtype,
                layout=layout.fingerprint,
                chunk_tokens=chunk_tokens,
                salt_hash=salt_hash,
                variant_hash=variant_hash,
                payload_bytes=codec.payload_bytes,
            )

        return cls(
            codec,
            chunk_tokens=chunk_tokens,
            namespace=namespace,
            ranks=ranks,
            save_unfull_chunk=save_unfull_chunk,
        )

    def namespaces(self, salt_hash: str, variant_hash: str) -> tuple[KeyNamespace, ...]:
        """Give the namespace of each rank."""
        names = self._known.get((salt_hash, variant_hash))
        if names is None:
            names = tuple(self._make(rank, salt_hash, variant_hash) for rank in self._ranks)
            if len(self._known) < _NAMESPACES_KEPT:
                self._known[salt_hash, variant_hash] = names
        return names

    def runs(self, tokens: TokenArray, salt: str, variant: str) -> list[ChunkRun]:
        """Hash a sequence once a rank.

        Raises:
            ValueError: The salt or the variant is no text.
        """
        return [self._cut(tokens, namespace) for namespace in self._named(salt, variant)]

    def run(self, tokens: TokenArray, salt: str, variant: str) -> ChunkRun:
        """Hash a sequence for the engine's own rank.

        Raises:
            ValueError: The salt or the variant is no text.
        """
        return self._cut(tokens, self._named(salt, variant)[0])

    def _named(self, salt: str, variant: str) -> tuple[KeyNamespace, ...]:
        return self.namespaces(_hash_of("salt", salt), _hash_of("variant", variant))

    def _cut(self, tokens: TokenArray, namespace: KeyNamespace) -> ChunkRun:
        unfull = self.save_unfull_chunk
        digests = chunk_digests(tokens, self.chunk_tokens, namespace.seed, unfull=unfull)
        return ChunkRun(namespace, digests, self.codec, len(tokens) % self.chunk_tokens if unfull else 0)


def _hash_of(what: str, text: object) -> str:
    """Hash what a caller gives for text. A tenant 0 that counted as none would meet those without a salt."""
    if not isinstance(text, str):
        kind = type(text).__name__
        raise ValueError(f"{what} must be text, got {kind}; give '' for none")  # noqa: TRY004 - callers' refusals are that
    try:
        return hash_salt(text)
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that utf-8 can write, got half a surrogate pair") from None
