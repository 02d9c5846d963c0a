"""Whole blocks between vLLM's KV cache and chunks.

A block's bytes are opaque here: attention backends arrange them as they like, some transposed in
tiles. A chunk's payload is ``[planes][blocks of the chunk][bytes of a block]``, where a plane is a
layer, or K or V of one for backends that keep them apart. The last chunk of a prompt may have
fewer tokens: behind its last block that block is repeated.

Hybrid models have several groups of layers, and a request has blocks of its own in each. A chunk has
all layers, group after group. A group of windowed layers has 0 for blocks that nothing attends to any
more: these are left out when a chunk is written, and a chunk that needs them cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from lmcache_core import KVGroup, LayoutError
from lmcache_plugins.vllm.records import BlockIds
from lmcache_plugins.vllm.slabs import Slab, slabs_of
from lmcache_plugins.vllm.staged import CopyQueue, CudaQueue, DeviceCopies, Part

_UINT8 = torch.uint8

_NO_BLOCK = 0
"""vLLM's null block, which stands in a windowed group for blocks that the request has let go of."""


@dataclass(frozen=True, slots=True)
class PagedKV:
    """A request's place in vLLM's KV cache.

    Attributes:
        block_ids: Its blocks in each group; chunks are written as far as they reach.
        first_block: Place of the first block that may be written: those before it were computed by vLLM.
        tokens: To read; the last chunk may end with them. 0 for whole chunks.
    """

    block_ids: BlockIds
    first_block: int = 0
    tokens: int = 0


class PagedAdapter:
    """Moves chunks between `PagedKV` and payloads. One copy a chunk and slab to read, one a run of blocks to write.

    Args:
        caches: vLLM's tensor of every layer, group after group.
        num_blocks: Blocks in each of them.
        block_tokens: Tokens in a block.
        chunk_tokens: Tokens in a chunk, a multiple of that.
        groups: Of layers; one of all of them, if it is left out.
        copies: Queue to copy by; that of the tensors' device, where it has one, if it is left out.

    Raises:
        LayoutError: The tensors' blocks cannot be copied whole.
    """

    def __init__(
        self,
        caches: Sequence[torch.Tensor],
        *,
        num_blocks: int,
        block_tokens: int,
        chunk_tokens: int,
        groups: Sequence[KVGroup] = (),
        copies: CopyQueue | None = None,
    ) -> None:
        if chunk_tokens % block_tokens:
            raise LayoutError(f"a chunk of {chunk_tokens} tokens is no whole number of vllm's {block_tokens}")
        self._slabs = slabs_of(caches, num_blocks, [group.num_layers for group in groups])
        self._windowed = [group.window_tokens > 0 for group in groups] or [False]
        self._num_blocks = num_blocks
        self._block_tokens = block_tokens
        self._chunk_blocks = chunk_tokens // block_tokens
        device = self._slabs[0].blocks.device
        if copies is None and device.type == "cuda":
            copies = CudaQueue(device)
        self._device = DeviceCopies(copies) if copies is not None else None

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all planes."""
        return sum(slab.planes * slab.block_bytes for slab in self._slabs)

    def check(self, kv: Any, tokens: int) -> None:
        """Refuse what is no `PagedKV`, or names blocks that do not exist.

        Raises:
            LayoutError: Says what is wrong.
        """
        del tokens  # a request may end before its last chunk does
        if not isinstance(kv, PagedKV):
            raise LayoutError(f"kv must be the blocks of a request, got {type(kv).__name__}")
        if len(kv.block_ids) != len(self._windowed):
            raise LayoutError(f"kv must have blocks of {len(self._windowed)} groups, got {len(kv.block_ids)}")
        for ids in kv.block_ids:
            if ids and not 0 <= min(ids) <= max(ids) < self._num_blocks:
                raise LayoutError(f"block ids must be of 0 to {self._num_blocks - 1}, got {min(ids)} to {max(ids)}")

    def gather(self, kv: PagedKV, starts: Sequence[int], outs: Sequence[memoryview]) -> None:
        """Copy the chunks that begin at these tokens into payloads; complete when it returns.

        Raises:
            LayoutError: The request has no blocks for a chunk.
        """
        chunks = [self._chunk_ids(kv, start) for start in starts]
        if self._device is not None:
            self._device.read(self._slabs, chunks, [self._bytes_of(out) for out in outs])
            return
        for chunk, out in zip(chunks, outs, strict=True):
            indexes = [torch.tensor(ids) for ids in chunk]
            for slab, part in self._parts(self._bytes_of(out)):
                torch.index_select(slab.blocks, 1, indexes[slab.group], out=slab.view(part))

    def scatter(self, payload: memoryview, kv: PagedKV, start: int) -> None:
        """Copy one chunk's payload into the blocks that may be written; complete when `finish` returns.

        Raises:
            LayoutError: A windowed group lacks a block behind one that it has.
        """
        parts = [self._part(kv, group, start) for group in range(len(self._windowed))]
        if not any(part.ids for part in parts):
            return
        source = self._bytes_of(payload)
        if self._device is not None:
            self._device.write(self._slabs, parts, source)
            return
        for slab, piece in self._parts(source):
            chunk = slab.view(piece)
            ids, skip = parts[slab.group]
            for begin, end in runs_of(ids) if ids else ():
                target = slab.blocks[:, ids[begin] : ids[begin] + end - begin]
                target.copy_(chunk[:, skip + begin : skip + end])

    def finish(self, kv: PagedKV) -> None:
        """Wait until every scatter is complete."""
        del kv
        if self._device is not None:
            self._device.finish()

    def _part(self, kv: PagedKV, group: int, start: int) -> Part:
        place = start // self._block_tokens
        first, end = max(place, kv.first_block), place + self._chunk_blocks
        ids = kv.block_ids[group]
        if self._windowed[group]:
            while first < min(end, len(ids)) and ids[first] == _NO_BLOCK:
                first += 1
            if _NO_BLOCK in ids[first:end]:
                raise LayoutError(f"the chunk from token {start} on goes to a block that group {group} has let go of")
        return Part(ids[first:end], first - place)

    def _chunk_ids(self, kv: PagedKV, start: int) -> list[list[int]]:
        return [self._ids(kv, group, start) for group in range(len(self._windowed))]

    def _ids(self, kv: PagedKV, group: int, start: int) -> list[int]:
        place = start // self._block_tokens
        ids = list(kv.block_ids[group][place : place + self._chunk_blocks])
        needed = self._chunk_blocks
        if kv.tokens:
            needed = min(needed, -(-(kv.tokens - start) // self._block_tokens))
        if len(ids) < needed:
            raise LayoutError(
                f"the chunk from token {start} on takes {needed} blocks, the request has {len(ids)} there"
            )
        if self._windowed[group] and _NO_BLOCK in ids:
            raise LayoutError(f"the chunk from token {start} on has a block that group {group} has let go of")
        # A chunk that is not full is filled up with its own last block, never with what the payload had before.
        return ids + ids[-1:] * (self._chunk_blocks - len(ids))

    def _bytes_of(self, payload: memoryview) -> torch.Tensor:
        # The tensor keeps the view, and the view keeps the arena's map: it can never dangle.
        return torch.frombuffer(payload, dtype=_UINT8)

    def _parts(self, payload: torch.Tensor) -> Iterator[tuple[Slab, torch.Tensor]]:
        begin = 0
        for slab in self._slabs:
            end = begin + slab.planes * slab.block_bytes * self._chunk_blocks
            yield slab, payload[begin:end]
            begin = end


def runs_of(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Give begin and end of each run of consecutive numbers, as places in the list."""
    cuts = [0, *(place + 1 for place, (one, other) in enumerate(pairwise(ids)) if other != one + 1), len(ids)]
    return pairwise(cuts)
