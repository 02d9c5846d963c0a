"""Whole blocks between vLLM's KV cache and chunks.

A block's bytes are opaque here: attention backends arrange them as they like, some transposed in
tiles. A chunk's payload is ``[planes][blocks of the chunk][bytes of a block]``, where a plane is a
layer, or K or V of one for backends that keep them apart. The last chunk of a prompt may have
fewer tokens: behind its last block that block is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from lmcache_core import LayoutError
from lmcache_plugins.vllm.slabs import Slab, slabs_of
from lmcache_plugins.vllm.staged import CopyQueue, CudaQueue, DeviceCopies

_UINT8 = torch.uint8


@dataclass(frozen=True, slots=True)
class PagedKV:
    """A request's place in vLLM's KV cache.

    Attributes:
        block_ids: Its blocks in order, from the first token on; chunks are written as far as they reach.
        first_block: Place of the first block that may be written: those before it were computed by vLLM.
        tokens: To read; the last chunk may end with them. 0 for whole chunks.
    """

    block_ids: Sequence[int]
    first_block: int = 0
    tokens: int = 0


class PagedAdapter:
    """Moves chunks between `PagedKV` and payloads. One copy a chunk and slab to read, one a run of blocks to write.

    Args:
        caches: vLLM's tensor of every layer, in order.
        num_blocks: Blocks in each of them.
        block_tokens: Tokens in a block.
        chunk_tokens: Tokens in a chunk, a multiple of that.
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
        copies: CopyQueue | None = None,
    ) -> None:
        if chunk_tokens % block_tokens:
            raise LayoutError(f"a chunk of {chunk_tokens} tokens is no whole number of vllm's {block_tokens}")
        self._slabs = slabs_of(caches, num_blocks)
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
        if kv.block_ids and not 0 <= min(kv.block_ids) <= max(kv.block_ids) < self._num_blocks:
            raise LayoutError(
                f"block ids must be of 0 to {self._num_blocks - 1}, got {min(kv.block_ids)} to {max(kv.block_ids)}"
            )

    def gather(self, kv: PagedKV, starts: Sequence[int], outs: Sequence[memoryview]) -> None:
        """Copy the chunks that begin at these tokens into payloads; complete when it returns.

        Raises:
            LayoutError: The request has no blocks for a chunk.
        """
        chunks = [self._chunk_ids(kv, start) for start in starts]
        if self._device is not None:
            self._device.read(self._slabs, chunks, [self._bytes_of(out) for out in outs])
            return
        for ids, out in zip(chunks, outs, strict=True):
            index = torch.tensor(ids)
            for slab, part in self._parts(self._bytes_of(out)):
                torch.index_select(slab.blocks, 1, index, out=slab.view(part))

    def scatter(self, payload: memoryview, kv: PagedKV, start: int) -> None:
        """Copy one chunk's payload into the blocks that may be written; complete when `finish` returns."""
        place = start // self._block_tokens
        first = max(place, kv.first_block)
        ids = kv.block_ids[first : place + self._chunk_blocks]
        if not ids:
            return
        source = self._bytes_of(payload)
        skip = first - place
        if self._device is not None:
            self._device.write(self._slabs, ids, source, skip)
            return
        for slab, part in self._parts(source):
            chunk = slab.view(part)
            for begin, end in runs_of(ids):
                target = slab.blocks[:, ids[begin] : ids[begin] + end - begin]
                target.copy_(chunk[:, skip + begin : skip + end])

    def finish(self, kv: PagedKV) -> None:
        """Wait until every scatter is complete."""
        del kv
        if self._device is not None:
            self._device.finish()

    def _chunk_ids(self, kv: PagedKV, start: int) -> list[int]:
        place = start // self._block_tokens
        ids = list(kv.block_ids[place : place + self._chunk_blocks])
        needed = self._chunk_blocks
        if kv.tokens:
            needed = min(needed, -(-(kv.tokens - start) // self._block_tokens))
        if len(ids) < needed:
            raise LayoutError(
                f"the chunk from token {start} on takes {needed} blocks, the request has {len(ids)} there"
            )
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
