"""Copies between a GPU's blocks and payloads: through pinned buffers, on a stream beside the one that computes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch

from lmcache_plugins.vllm.records import BlockIds
from lmcache_plugins.vllm.slabs import Slab

_BUFFERS = 2
"""While one chunk crosses the bus, the one before it goes between its pinned buffer and its payload."""


class Part(NamedTuple):
    """Blocks of one group that a chunk's are written to.

    Attributes:
        ids: Where to.
        skip: Blocks of the chunk before the first of them.
    """

    ids: Sequence[int]
    skip: int


class Mark(Protocol):
    """A place in a queue of work."""

    def synchronize(self) -> None:
        """Block this thread until all work before the mark is complete."""


class CopyQueue(Protocol):
    """A device's queue of work, apart from the streams that compute; it is done in the order it is given."""

    device: torch.device

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """Make a buffer that the device can reach by itself."""

    def follow_caller(self) -> None:
        """Let the work to come wait for all that the caller's current stream has been given."""

    def run(self, work: Callable[[], None]) -> Mark:
        """Queue work; return the mark behind it, perhaps before it is done."""


class CudaQueue:
    """The `CopyQueue` of a CUDA device. Any thread; the caller's stream is that thread's current one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """See `CopyQueue`."""
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def follow_caller(self) -> None:
        """See `CopyQueue`; an event, the host does not wait."""
        self._stream.wait_stream(torch.cuda.current_stream(self.device))

    def run(self, work: Callable[[], None]) -> Mark:
        """See `CopyQueue`. Temporary tensors of the work belong to the stream, and live as long as it needs them."""
        with torch.cuda.stream(self._stream):
            work()
            return self._stream.record_event()  # type: ignore[no-any-return]  # torch is Any here


class DeviceCopies:
    """Copies of one device. Any thread; one call at a time goes on.

    Args:
        copies: The device's queue.
    """

    def __init__(self, copies: CopyQueue) -> None:
        self._queue = copies
        self._lock = threading.Lock()
        self._pinned: list[torch.Tensor] = []
        self._crossing: deque[Mark] = deque()  # of `write`, oldest first, at most one a buffer
        self._written = 0

    def read(self, slabs: Sequence[Slab], chunks: Sequence[BlockIds], outs: Sequence[torch.Tensor]) -> None:
        """Copy chunks from the device; complete when it returns. Follows the caller's stream.

        Args:
            slabs: Where from.
            chunks: Blocks of each chunk in each group.
            outs: Where to.
        """
        with self._lock:
            self._land_writes()
            self._queue.follow_caller()
            crossing: deque[tuple[Mark, torch.Tensor, torch.Tensor]] = deque()
            for place, (ids, out) in enumerate(zip(chunks, outs, strict=True)):
                buffer = self._buffer(place % _BUFFERS, out.numel())
                crossing.append((self._queue.run(_fetch(slabs, ids, buffer)), buffer, out))
                if len(crossing) == _BUFFERS:
                    _land(*crossing.popleft())
            while crossing:
                _land(*crossing.popleft())

    def write(self, slabs: Sequence[Slab], parts: Sequence[Part], payload: torch.Tensor) -> None:
        """Copy one chunk to the device but for its first blocks; the payload is free when it returns.

        Args:
            slabs: Where to.
            parts: Blocks to fill, in each group.
            payload: The whole chunk.
        """
        with self._lock:
            if len(self._crossing) == _BUFFERS:
                self._crossing.popleft().synchronize()
            buffer = self._buffer(self._written % _BUFFERS, payload.numel())
            self._written += 1
            buffer.copy_(payload)
            self._queue.follow_caller()
            self._crossing.append(self._queue.run(_spread(slabs, tuple(parts), buffer)))

    def finish(self) -> None:
        """Wait until every write is complete."""
        with self._lock:
            self._land_writes()

    def _land_writes(self) -> None:
        while self._crossing:
            self._crossing.popleft().synchronize()

    def _buffer(self, place: int, size_bytes: int) -> torch.Tensor:
        while len(self._pinned) <= place:
            self._pinned.append(self._queue.pinned(size_bytes))
        return self._pinned[place][:size_bytes]


def _fetch(slabs: Sequence[Slab], block_ids: BlockIds, buffer: torch.Tensor) -> Callable[[], None]:
    def work() -> None:
        indexes = [torch.tensor(ids, device=slabs[0].blocks.device) for ids in block_ids]
        begin = 0
        for slab in slabs:
            part = torch.index_select(slab.blocks, 1, indexes[slab.group]).view(-1).view(torch.uint8)
            buffer[begin : begin + part.numel()].copy_(part, non_blocking=True)
            begin += part.numel()

    return work


def _spread(slabs: Sequence[Slab], parts: Sequence[Part], buffer: torch.Tensor) -> Callable[[], None]:
    blocks = buffer.numel() // sum(slab.planes * slab.block_bytes for slab in slabs)

    def work() -> None:
        device = slabs[0].blocks.device
        indexes = [torch.tensor(part.ids, device=device) for part in parts]
        begin = 0
        for slab in slabs:
            end = begin + slab.planes * slab.block_bytes * blocks
            ids, skip = parts[slab.group]
            if ids:
                chunk = slab.view(buffer[begin:end].to(device, non_blocking=True))
                slab.blocks.index_copy_(1, indexes[slab.group], chunk[:, skip : skip + len(ids)])
            begin = end

    return work


def _land(mark: Mark, buffer: torch.Tensor, out: torch.Tensor) -> None:
    mark.synchronize()
    out.copy_(buffer)
