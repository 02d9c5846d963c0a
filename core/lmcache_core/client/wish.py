"""What a client tells a server it will store, and how its chunks follow from the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lmcache_core.access.format import ChunkFormat
from lmcache_core.codec.frame import FrameCodec
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.wire.messages import Layout, Register


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An engine's model and shape.

    Attributes:
        layout: Shape of its KV.
        model_name: As the engine names the model; part of every key.
        model_type: As the model's own configuration names its kind; ``""`` for not said.
        world_size: Ranks that split the KV.
        ranks: Whose chunks are meant: the engine's own, or all for a scheduler that looks up for them.
        block_tokens: Tokens in one block of the engine; chunks are whole blocks.
        plugins: Those in force in this process.
    """

    layout: KVLayout
    model_name: str
    model_type: str = ""
    world_size: int = 1
    ranks: Sequence[int] = (0,)
    block_tokens: int = 1
    plugins: PluginSet = field(default_factory=PluginSet)

    def message(self, call: int, session: int) -> Register:
        """Say it to a server."""
        layout = self.layout
        groups = tuple((group.name, group.kind, group.num_layers) for group in layout.groups)
        return Register(
            call,
            session,
            self.model_name,
            self.model_type,
            Layout(
                layout.num_layers,
                layout.num_kv_heads,
                layout.head_size,
                layout.dtype,
                layout.use_mla,
                layout.format,
                groups,
            ),
            tuple(group.window_tokens for group in layout.groups) if _has_windows(layout) else (),
            tuple(group.kind for group in layout.groups),
            self.world_size,
            tuple(self.ranks),
            self.block_tokens,
        )

    def format(self, chunk_tokens: int, *, save_unfull_chunk: bool = False) -> ChunkFormat:
        """Cut chunks as the server said."""
        return ChunkFormat(
            FrameCodec(self.layout, chunk_tokens),
            chunk_tokens=chunk_tokens,
            namespace=lambda rank, salt_hash, variant_hash: self._namespace(
                chunk_tokens, rank, salt_hash, variant_hash
            ),
            ranks=tuple(self.ranks),
            save_unfull_chunk=save_unfull_chunk,
        )

    def _namespace(self, chunk_tokens: int, rank: int, salt_hash: str, variant_hash: str) -> KeyNamespace:
        return KeyNamespace(
            model_name=self.model_name,
            world_size=self.world_size,
            rank=rank,
            dtype=self.layout.dtype,
            layout=self.layout.fingerprint,
            chunk_tokens=chunk_tokens,
            salt_hash=salt_hash,
            variant_hash=variant_hash,
            payload_bytes=self.layout.bytes_per_token * chunk_tokens,
        )


def _has_windows(layout: KVLayout) -> bool:
    return any(group.window_tokens for group in layout.groups)
