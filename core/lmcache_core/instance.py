"""Who one cache instance is: its model, its shape, its rank."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from lmcache_core.access.format import ChunkFormat
from lmcache_core.config.model import CoreConfig
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.tokens.hashing import nearest_chunk_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What an engine says of itself when it asks for a cache.

    Attributes:
        instance_id: Names it in metrics and reports.
        layout: Shape of its KV.
        model_name: As the engine names the model; part of every key.
        model_type: As the model's own configuration names its kind; ``""`` for not said.
        world_size: Ranks that split the KV.
        rank: Which of them this is.
        chunk_tokens: Tokens in one chunk; whole blocks of the engine.
    """

    instance_id: str
    layout: KVLayout
    model_name: str
    model_type: str
    world_size: int
    rank: int
    chunk_tokens: int
    save_unfull_chunk: bool = False

    @classmethod
    def of(
        cls,
        values: CoreConfig,
        *,
        layout: KVLayout,
        model_name: str,
        world_size: int,
        rank: int,
        model_type: str,
        block_tokens: int = 1,
    ) -> Instance:
        """Join what the engine says with what is configured; an id that is not configured is made up."""
        return cls(
            instance_id=values.lmcache_instance_id or uuid.uuid4().hex[:12],
            layout=layout,
            model_name=model_name,
            model_type=model_type,
            world_size=world_size,
            rank=rank,
            chunk_tokens=nearest_chunk_tokens(values.chunk_size, block_tokens),
            save_unfull_chunk=values.save_unfull_chunk,
        )

    @property
    def own_rank(self) -> int | None:
        """The rank where several share a configuration, so that each needs files of its own; else None."""
        return self.rank if self.world_size > 1 else None

    @property
    def labels(self) -> Mapping[str, str]:
        """``instance_id``, ``model_name``, ``worker_id``, ``role``."""
        return {
            "instance_id": self.instance_id,
            "model_name": self.model_name,
            "worker_id": str(self.rank),
            "role": "worker",
        }

    def format(self) -> ChunkFormat:
        """Say how its chunks are cut, named and framed."""
        return ChunkFormat.of(
            self.layout,
            model_name=self.model_name,
            world_size=self.world_size,
            ranks=(self.rank,),
            chunk_tokens=self.chunk_tokens,
            save_unfull_chunk=self.save_unfull_chunk,
        )
