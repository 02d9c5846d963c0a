"""Identity of a chunk, the same in every process, on every Python and on every host."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from urllib.parse import quote

FRAME_HEADER_BYTES = 128
"""What precedes a chunk's KV in its frame; a multiple of 64, as vector instructions like it."""

_MODEL_NAME_LIMIT = 80  # file systems allow 255 bytes for the whole folder name


def hash_salt(salt: str) -> str:
    """Turn a tenant's salt, or a variant, into what may be stored: ``""`` for none, else 32 hex digits.

    The raw salt is a secret of the tenant; it is never written, logged or sent.
    """
    return hashlib.sha256(b"lmcache-core/salt\0" + salt.encode()).hexdigest()[:32] if salt else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNamespace:
    """Everything but the tokens that tells two chunks apart.

    Attributes:
        model_name: As the engine names it; any text.
        world_size: Ranks that split one model's KV, at least 1.
        rank: Which of them, 0 to ``world_size - 1``.
        dtype: torch name of the KV's type, such as ``bfloat16``.
        layout: `KVLayout.fingerprint`, so that another shape can never match.
        chunk_tokens: Tokens in one chunk.
        salt_hash: From `hash_salt`; ``""`` for no tenant.
        variant_hash: Likewise of any further identity, such as a LoRA adapter's name; ``""`` for none.
        payload_bytes: KV of one chunk, which the other values imply; not part of the identity.
    """

    model_name: str
    world_size: int
    rank: int
    dtype: str
    layout: str
    chunk_tokens: int
    salt_hash: str = ""
    variant_hash: str = ""
    payload_bytes: int = field(default=0, compare=False)
    name: str = field(init=False)
    """One path component, unique to the namespace; ASCII, no slash, under 200 characters."""
    seed: bytes = field(init=False)
    """32 bytes that start the hash chain; digests of two namespaces never coincide."""

    @property
    def frame_bytes(self) -> int:
        """Length of each of its chunks as they travel to a store."""
        return FRAME_HEADER_BYTES + self.payload_bytes

    def __post_init__(self) -> None:
        """Derive `name` and `seed` once; both are asked for on every key."""
        parts = (
            self.model_name,
            str(self.world_size),
            str(self.rank),
            self.dtype,
            self.layout,
            str(self.chunk_tokens),
            self.salt_hash,
            *([self.variant_hash] if self.variant_hash else []),
        )
        # Length-prefixed: ("ab", "c") and ("a", "bc") must differ.
        identity = b"".join(len(raw).to_bytes(4, "little") + raw for raw in (p.encode() for p in parts))
        seed = hashlib.sha256(b"lmcache-core/namespace/1\0" + identity).digest()
        model = quote(self.model_name, safe="")[:_MODEL_NAME_LIMIT]
        shown = f"{model}@{self.world_size}@{self.rank}@{self.dtype}@{self.chunk_tokens}@{seed.hex()[:16]}"
        object.__setattr__(self, "seed", seed)
        object.__setattr__(self, "name", shown)


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """One chunk: a namespace, and the chained SHA-256 of all tokens up to the chunk's end.

    Attributes:
        namespace: Shared by all chunks of one model, rank and tenant.
        digest: 32 bytes; unique on its own, as the chain starts from `KeyNamespace.seed`.
    """

    namespace: KeyNamespace
    digest: bytes

    def __str__(self) -> str:
        return f"{self.namespace.name}/{self.digest.hex()}"
