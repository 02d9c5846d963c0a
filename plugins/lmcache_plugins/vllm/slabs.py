"""vLLM's KV cache seen as planes of blocks of bytes, whatever the attention backend made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lmcache_core import LayoutError

_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Whole numbers to copy by, widest first: copies of few wide elements are faster where they are indexed."""


@dataclass(frozen=True, slots=True)
class Slab:
    """Planes of one storage at equal distances, so that one copy reaches all of them.

    Attributes:
        blocks: ``[planes, blocks, words of a block]``; the words of a block are contiguous.
        group: Of layers, whose block ids these are.
    """

    blocks: torch.Tensor
    group: int = 0

    @property
    def planes(self) -> int:
        """How many."""
        return int(self.blocks.shape[0])

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in one plane."""
        return int(self.blocks.shape[2]) * int(self.blocks.element_size())

    def view(self, payload: torch.Tensor) -> torch.Tensor:
        """See bytes as ``[planes, any number of blocks, words]``."""
        return payload.view(self.blocks.dtype).view(self.planes, -1, self.blocks.shape[2])


@dataclass(frozen=True, slots=True)
class _Plane:
    storage: torch.Tensor
    offset_bytes: int
    stride_bytes: int
    block_bytes: int


def slabs_of(caches: Sequence[torch.Tensor], num_blocks: int, group_layers: Sequence[int] = ()) -> list[Slab]:
    """See the tensors of all layers, in order, as slabs.

    Args:
        caches: The tensors; those of layers of different groups may share their memory.
        num_blocks: Blocks in each of them.
        group_layers: How many of them each group has, in order; empty for one group.

    Raises:
        LayoutError: The bytes of a block are not in one piece, or a tensor has no dimension of blocks.
    """
    slabs: list[Slab] = []
    first = 0
    for group, layers in enumerate(group_layers or (len(caches),)):
        planes = [plane for cache in caches[first : first + layers] for plane in _planes(cache, num_blocks)]
        slabs += [Slab(_blocks(even, num_blocks), group) for even in _even(planes)] if planes else []
        first += layers
    if not slabs:
        raise LayoutError("vllm registered no kv cache tensor")
    return slabs


def _planes(cache: torch.Tensor, num_blocks: int) -> list[_Plane]:
    item = cache.element_size()
    place = next((at for at, size in enumerate(cache.shape) if size and size % num_blocks == 0), None)
    if place is None:
        raise LayoutError(f"no dimension of the kv cache tensor {list(cache.shape)} has {num_blocks} blocks")
    split = cache.shape[place] // num_blocks  # kernels may work on parts of vllm's blocks
    sizes, strides = list(cache.shape), list(cache.stride())
    inner = [at for at in range(cache.dim()) if at != place and strides[at] < strides[place]]
    outer = [at for at in range(cache.dim()) if at != place and strides[at] >= strides[place] and sizes[at] > 1]
    elements = 1
    for at in sorted(inner, key=lambda at: strides[at]):
        if sizes[at] > 1 and strides[at] != elements:
            raise LayoutError(f"the blocks of the kv cache tensor {sizes} with strides {strides} are not in one piece")
        elements *= sizes[at]
    if split > 1 and strides[place] != elements:
        raise LayoutError(f"the blocks of the kv cache tensor {sizes} with strides {strides} are not in one piece")
    starts = [cache.storage_offset()]
    for at in outer:
        starts = [start + step * strides[at] for start in starts for step in range(sizes[at])]
    storage = torch.empty(0, dtype=torch.uint8, device=cache.device).set_(cache.untyped_storage())
    stride_bytes = strides[place] * split * item
    return [_Plane(storage, start * item, stride_bytes, elements * split * item) for start in starts]


def _even(planes: Sequence[_Plane]) -> list[list[_Plane]]:
    groups: list[list[_Plane]] = [[planes[0]]]
    for plane in planes[1:]:
        group = groups[-1]
        last = group[-1]
        step = group[1].offset_bytes - group[0].offset_bytes if len(group) > 1 else None
        alike = (
            plane.storage.data_ptr() == last.storage.data_ptr()
            and (plane.stride_bytes, plane.block_bytes) == (last.stride_bytes, last.block_bytes)
            and plane.offset_bytes > last.offset_bytes
            and step in (None, plane.offset_bytes - last.offset_bytes)
        )
        if alike:
            group.append(plane)
        else:
            groups.append([plane])
    return groups


def _blocks(group: Sequence[_Plane], num_blocks: int) -> torch.Tensor:
    first = group[0]
    step = group[1].offset_bytes - first.offset_bytes if len(group) > 1 else first.block_bytes
    numbers = (first.offset_bytes, first.stride_bytes, first.block_bytes, step, first.storage.data_ptr())
    word = next(word for word in _WORDS if all(number % word.itemsize == 0 for number in numbers))
    words = first.storage[: first.storage.numel() // word.itemsize * word.itemsize].view(word)
    shape = (len(group), num_blocks, first.block_bytes // word.itemsize)
    strides = (step // word.itemsize, first.stride_bytes // word.itemsize, 1)
    return torch.as_strided(words, shape, strides, first.offset_bytes // word.itemsize)
