"""Copies between a device and pageable memory, through pinned buffers and beside the stream that computes.

Pinning the whole arena instead would save the copy between buffer and block. It would also pin all of the
cache's memory at start-up, and a block would have to stay leased until the device is done with it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the optional extra torch
    import torch

_BUFFERS = 2
"""While one chunk crosses the bus, the one before it goes between its pinned buffer and its block."""


class Mark(Protocol):
    """A place in a queue of copies."""

    def synchronize(self) -> None:
        """Block this thread until every copy before the mark is complete."""


class CopyStream(Protocol):
    """A device's queue of copies, apart from the streams that compute; they run in the order they are given."""

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Make a buffer of memory that the device can reach by itself; its content is arbitrary."""

    def follow_caller(self) -> None:
        """Let the copies to come wait for all work that the caller's current stream has been given."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Mark:
        """Queue a copy between the device and a pinned buffer; return at once, with the mark behind it."""

    def lead_caller(self, mark: Mark) -> None:
        """Let work given to the caller's current stream from now on wait for a mark."""


class CudaCopyStream:
    """The `CopyStream` of one CUDA device. Any thread; the caller's stream is that thread's current one."""

    def __init__(self, device: torch.device) -> None:
        import torch  # noqa: PLC0415 - optional extra

        self._torch = torch
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """See `CopyStream`."""
        return self._torch.empty(shape, dtype=dtype, pin_memory=True)

    def follow_caller(self) -> None:
        """See `CopyStream`; an event, the host does not wait."""
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Mark:
        """See `CopyStream`. What is strided on the device is gathered there, by a kernel on the same stream."""
        with self._torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            return self._stream.record_event()  # type: ignore[no-any-return]  # torch is Any here

    def lead_caller(self, mark: Mark) -> None:
        """See `CopyStream`; an event, the host does not wait."""
        self._torch.cuda.current_stream(self._device).wait_event(mark)


def copy_stream_of(device: torch.device) -> CopyStream | None:
    """Make the copy stream of a CUDA device; None for memory whose plain copies are complete when they return."""
    return CudaCopyStream(device) if device.type == "cuda" else None


class Staging:
    """Moves chunks one way between a device and blocks. Any thread; one call at a time goes on.

    Args:
        stream: Of the device.
        shape: Of every chunk; the last one of a sequence may be smaller.
        dtype: Of every chunk.
    """

    def __init__(self, stream: CopyStream, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._buffers = [stream.pinned(shape, dtype) for _ in range(_BUFFERS)]
        self._in_flight: deque[Mark] = deque()  # of `write`, oldest first, at most one a buffer
        self._written = 0

    def read(self, sources: Iterable[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        """Copy chunks from the device into memory; complete when it returns.

        Work that the caller's stream was given before is waited for.
        """
        with self._lock:
            self._stream.follow_caller()
            crossing: deque[tuple[Mark, torch.Tensor, torch.Tensor]] = deque()
            for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
                buffer = _fitting(self._buffers[place % _BUFFERS], source)
                crossing.append((self._stream.copy(buffer, source), buffer, target))
                if len(crossing) == _BUFFERS:
                    _land(*crossing.popleft())
            while crossing:
                _land(*crossing.popleft())

    def write(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy one chunk from memory to the device; its memory is free for anything when it returns.

        The copy itself may still be under way. Work given to the caller's stream from then on waits
        for it, as for any other work of that stream.
        """
        with self._lock:
            if len(self._in_flight) == _BUFFERS:
                self._in_flight.popleft().synchronize()
            buffer = _fitting(self._buffers[self._written % _BUFFERS], source)
            buffer.copy_(source)
            self._stream.follow_caller()
            mark = self._stream.copy(target, buffer)
            self._written += 1
            self._in_flight.append(mark)
            self._stream.lead_caller(mark)


def _fitting(buffer: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
    """See as much of a buffer as a chunk has, in one piece: copies of pieces would go through further memory."""
    return buffer.view(-1)[: chunk.numel()].view(chunk.shape)


def _land(mark: Mark, buffer: torch.Tensor, target: torch.Tensor) -> None:
    mark.synchronize()
    target.copy_(buffer)
