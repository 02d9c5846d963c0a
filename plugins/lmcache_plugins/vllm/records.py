"""What the connector's two sides exchange: plain records, without a type of vLLM's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lmcache_core import KVLayout, PluginSet

Tokens: TypeAlias = "npt.NDArray[np.int64]"

BlockIds: TypeAlias = Sequence[Sequence[int]]
"""A request's blocks in each group of layers, from its first token on; a windowed group has 0 for what it let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request as the scheduler holds it.

    Attributes:
        request_id: vLLM's.
        tokens: Prompt and what has been generated; grows while the request lives.
        prompt_tokens: How many of them are the prompt.
        preemptions: How often vLLM took the request's blocks away.
        salt: The tenant's; a secret.
        variant: Further identity of the KV, such as a LoRA adapter's name and path.
        refusal: Why this request's KV cannot be named by its tokens; ``""`` where it can.
        reads: False where vLLM wants every token computed.
    """

    request_id: str
    tokens: Sequence[int] = field(repr=False)
    prompt_tokens: int
    preemptions: int = 0
    salt: str = field(default="", repr=False)
    variant: str = ""
    refusal: str = ""
    reads: bool = True


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What one request gets in a step.

    Attributes:
        request_id: vLLM's.
        computed_tokens: Tokens whose KV is there before the step.
        step_tokens: Tokens computed in the step.
        block_ids: Blocks, further ones or all; empty for no further ones.
        replaces: Whether they are all; False where they come behind those known.
    """

    request_id: str
    computed_tokens: int
    step_tokens: int
    block_ids: BlockIds
    replaces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """Blocks to fill from the cache.

    Attributes:
        request_id: vLLM's.
        tokens: Of whole chunks; empty where the order cannot be carried out and its blocks are to be computed.
        block_ids: The last ones are the last to fill.
        first_block: Place of the first block to fill; those before it are vLLM's own.
        salt: The tenant's.
        variant: Further identity of the KV.
    """

    request_id: str
    tokens: Tokens = field(repr=False)
    block_ids: BlockIds
    first_block: int
    salt: str = field(default="", repr=False)
    variant: str = ""

    @property
    def blocks(self) -> int:
        """Places of the request up to the last one to fill."""
        return min(map(len, self.block_ids), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """Full chunks to keep when the step has been computed: all from the first token on.

    Attributes:
        request_id: vLLM's.
        tokens: Of the chunks.
        block_ids: Of the request.
        first_block: Place of the first block that every group still has.
        salt: The tenant's.
        variant: Further identity of the KV.
    """

    request_id: str
    tokens: Tokens = field(repr=False)
    block_ids: BlockIds
    first_block: int = 0
    salt: str = field(default="", repr=False)
    variant: str = ""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The connector's work in one step.

    Attributes:
        loads: Before the step, or beside it.
        saves: After it.
        idle: Whether vLLM computes nothing in the step, so that waiting for a load costs nobody.
    """

    loads: tuple[LoadOrder, ...] = ()
    saves: tuple[SaveOrder, ...] = ()
    idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCard:
    """What a worker tells the scheduler's side of itself.

    Attributes:
        layout: Of its KV; None where it serves nothing.
        model_name: Part of each key.
        model_type: As the model's own configuration names its kind.
        rank: Of the worker.
        world_size: Ranks that split the KV.
        block_tokens: vLLM's block size.
        windows: Tokens that each group of layers attends to, 0 for all.
        blocks: In vLLM's pool.
        address: Where lookups in its own cache are answered; ``""`` where a server has the cache.
        reason: Why it serves nothing; ``""`` where it does.
        plugins: Of lmcache-core, those in force in the worker; empty where it did not say.
    """

    layout: KVLayout | None
    model_name: str = ""
    model_type: str = ""
    rank: int = 0
    world_size: int = 1
    block_tokens: int = 1
    windows: tuple[int, ...] = (0,)
    blocks: int = 0
    address: str = ""
    reason: str = ""
    plugins: PluginSet = field(default_factory=PluginSet)

    @property
    def whole(self) -> bool:
        """Whether a load that falls short is of no use, or vLLM cannot be told of single blocks."""
        return len(self.windows) > 1 or any(self.windows)
