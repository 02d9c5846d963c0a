"""Copies between a GPU's blocks and payloads: through pinned buffers, on a stream beside the one that computes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import torch

from lmcache_plugins.vllm.slabs import Slab

_BUFFERS = 2
"""While one chunk crosses the bus, the one before it goes between its pinned buffer and its payload."""


class DeviceCopies:
    """Copies of one device. Any thread; one call at a time goes on.

    Args:
        device: A CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._lock = threading.Lock()
        self._pinned: list[torch.Tensor] = []
        self._free: list[torch.cuda.Event | None] = [None] * _BUFFERS
        self._written = 0

    def read(self, slabs: Sequence[Slab], chunks: Sequence[Sequence[int]], outs: Sequence[torch.Tensor]) -> None:
        """Copy chunks from the device; complete when it returns. Follows the caller's stream."""
        caller = torch.cuda.current_stream(self._device)
        with self._lock, torch.cuda.stream(self._stream):
            self._stream.wait_stream(caller)
            crossing: deque[tuple[torch.cuda.Event, torch.Tensor, torch.Tensor]] = deque()
            for place, (ids, out) in enumerate(zip(chunks, outs, strict=True)):
                buffer = self._buffer(place % _BUFFERS, out.numel())
                index = torch.tensor(ids, device=self._device)
                parts = [torch.index_select(slab.blocks, 1, index).view(-1).view(torch.uint8) for slab in slabs]
                buffer.copy_(torch.cat(parts) if len(parts) > 1 else parts[0], non_blocking=True)
                crossing.append((self._stream.record_event(), buffer, out))
                if len(crossing) == _BUFFERS:
                    _land(*crossing.popleft())
            while crossing:
                _land(*crossing.popleft())

    def write(self, slabs: Sequence[Slab], ids: Sequence[int], payload: torch.Tensor, skip: int) -> None:
        """Copy one chunk to the device but for its first blocks; the payload is free when it returns.

        Args:
            slabs: Where to.
            ids: Blocks to fill.
            payload: The whole chunk.
            skip: Blocks of the chunk before the first of them.
        """
        caller = torch.cuda.current_stream(self._device)
        with self._lock, torch.cuda.stream(self._stream):
            self._stream.wait_stream(caller)
            place = self._written % _BUFFERS
            self._written += 1
            event = self._free[place]
            if event is not None:
                event.synchronize()
            buffer = self._buffer(place, payload.numel())
            buffer.copy_(payload)
            chunk = buffer.to(self._device, non_blocking=True)
            index = torch.tensor(ids, device=self._device)
            blocks = payload.numel() // sum(slab.planes * slab.block_bytes for slab in slabs)
            begin = 0
            for slab in slabs:
                end = begin + slab.planes * slab.block_bytes * blocks
                source = slab.view(chunk[begin:end])[:, skip : skip + len(ids)]
                slab.blocks.index_copy_(1, index, source)
                begin = end
            self._free[place] = self._stream.record_event()

    def finish(self) -> None:
        """Wait until every write is complete."""
        self._stream.synchronize()

    def _buffer(self, place: int, size: int) -> torch.Tensor:
        if len(self._pinned) <= place:
            self._pinned.append(torch.empty(size, dtype=torch.uint8, pin_memory=True))
        return self._pinned[place][:size]


def _land(event: torch.cuda.Event, buffer: torch.Tensor, out: torch.Tensor) -> None:
    event.synchronize()
    out.copy_(buffer)
