"""Plain KV tensors, ``[kv, layers, tokens, hidden]``, to block payloads and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lmcache_core.adapters.staging import CopyStream, Staging, copy_stream_of
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.errors import LayoutError, LMCacheError

if TYPE_CHECKING:  # the optional extra torch
    import torch


class TensorAdapter:
    """Copies chunks with one strided copy each. Any thread.

    A payload is the contiguous ``[kv, layers, chunk_tokens, hidden]`` of one chunk; behind the tokens of the last
    one of a sequence it is zero. A CUDA tensor's
    chunks go through pinned buffers, on a stream of their own that waits for the caller's current one.
    The first copy on a device pins two chunks' worth of memory for its direction.

    Args:
        layout: Shape and type of the KV.
        chunk_tokens: Tokens in a chunk.
        stream_of: Makes a device's copy stream; None where plain copies are right.

    Raises:
        LMCacheError: torch is not installed; says how to install it.
    """

    def __init__(
        self,
        layout: KVLayout,
        chunk_tokens: int,
        stream_of: Callable[[torch.device], CopyStream | None] = copy_stream_of,
    ) -> None:
        try:
            import torch  # noqa: PLC0415 - optional extra
        except ImportError as error:
            raise LMCacheError("kv tensors need 'torch'; run: pip install 'lmcache-core[torch]'") from error
        self._torch = torch
        self._layout = layout
        self._chunk_tokens = chunk_tokens
        self._dtype: torch.dtype = getattr(torch, layout.dtype)
        self._chunk_shape = layout.kv_shape(chunk_tokens)
        self._stream_of = stream_of
        self._lock = threading.Lock()
        self._stagings: dict[tuple[torch.device, str], Staging | None] = {}

    def check(self, kv: Any, tokens: int) -> None:
        """Refuse anything that is not this layout's KV of so many tokens.

        Raises:
            LayoutError: Says what was expected and what came.
        """
        if not isinstance(kv, self._torch.Tensor):
            raise LayoutError(f"kv must be a torch tensor, got {type(kv).__name__}")
        expected = self._layout.kv_shape(tokens)
        if tuple(kv.shape) != expected:
            raise LayoutError(f"kv must have shape {list(expected)} for {tokens} tokens, got {list(kv.shape)}")
        if kv.dtype != self._dtype:
            came = str(kv.dtype).removeprefix("torch.")
            raise LayoutError(f"kv must be {self._layout.dtype} as registered, got {came}")

    def gather(self, kv: torch.Tensor, starts: Sequence[int], outs: Sequence[memoryview]) -> None:
        """Copy the chunks that begin at these tokens into payloads; complete when it returns."""
        staging = self._staging(kv.device, "read")
        if staging is not None:
            parts = [self._part(kv, start) for start in starts]
            staging.read(parts, [self._filled(out, part) for part, out in zip(parts, outs, strict=True)])
            return
        for start, out in zip(starts, outs, strict=True):
            part = self._part(kv, start)
            self._filled(out, part).copy_(part)

    def scatter(self, payload: memoryview, kv: torch.Tensor, start: int) -> None:
        """Copy one chunk's payload into the tensor from a token on; the payload is read when it returns.

        A CUDA tensor is filled before any work that the caller's current stream is given afterwards.
        """
        staging = self._staging(kv.device, "write")
        if staging is not None:
            part = self._part(kv, start)
            staging.write(part, self._chunk(payload)[:, :, : part.shape[2]])
        else:
            part = self._part(kv, start)
            part.copy_(self._chunk(payload)[:, :, : part.shape[2]])

    def finish(self, kv: torch.Tensor) -> None:
        """Do nothing: after each `scatter` the caller's stream already waits for its copy."""

    def _part(self, kv: torch.Tensor, start: int) -> torch.Tensor:
        return kv[:, :, start : start + self._chunk_tokens]

    def _filled(self, payload: memoryview, part: torch.Tensor) -> torch.Tensor:
        """See as many tokens of a payload as the part has; what is behind them, of whoever had the block, is zero."""
        chunk, tokens = self._chunk(payload), part.shape[2]
        if tokens < self._chunk_tokens:
            chunk[:, :, tokens:].zero_()
        return chunk[:, :, :tokens]

    def _chunk(self, payload: memoryview) -> torch.Tensor:
        # The tensor keeps the view, and the view keeps the arena's map: it can never dangle.
        return self._torch.frombuffer(payload, dtype=self._dtype).view(self._chunk_shape)

    def _staging(self, device: torch.device, direction: str) -> Staging | None:
        key = (device, direction)
        with self._lock:
            if key not in self._stagings:
                stream = self._stream_of(device)
                self._stagings[key] = Staging(stream, self._chunk_shape, self._dtype) if stream is not None else None
            return self._stagings[key]
