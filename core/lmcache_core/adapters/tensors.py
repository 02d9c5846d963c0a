"""Plain KV tensors, ``[kv, layers, tokens, hidden]``, to block payloads and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lmcache_core.contracts.layout import KVLayout
from lmcache_core.errors import LayoutError, LMCacheError

if TYPE_CHECKING:  # the optional extra torch
    import torch


class TensorAdapter:
    """Copies chunks with one strided copy each. Any thread.

    A payload is the contiguous ``[kv, layers, chunk_tokens, hidden]`` of one chunk. CPU and CUDA
    tensors alike: a copy between a GPU and pageable memory is complete when it returns; the current
    stream is waited for first, so that KV still being computed is not read.

    Args:
        layout: Shape and type of the KV.
        chunk_tokens: Tokens in a chunk.

    Raises:
        LMCacheError: torch is not installed; says how to install it.
    """

    def __init__(self, layout: KVLayout, chunk_tokens: int) -> None:
        try:
            import torch  # noqa: PLC0415 - optional extra
        except ImportError as error:
            raise LMCacheError("kv tensors need 'torch'; run: pip install 'lmcache-core[torch]'") from error
        self._torch = torch
        self._layout = layout
        self._chunk_tokens = chunk_tokens
        self._dtype: torch.dtype = getattr(torch, layout.dtype)
        self._chunk_shape = layout.kv_shape(chunk_tokens)

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
        self._wait_for(kv)
        for start, out in zip(starts, outs, strict=True):
            self._chunk(out).copy_(kv[:, :, start : start + self._chunk_tokens])

    def scatter(self, payload: memoryview, kv: torch.Tensor, start: int) -> None:
        """Copy one chunk's payload into the tensor from a token on; complete when it returns."""
        kv[:, :, start : start + self._chunk_tokens].copy_(self._chunk(payload))
        self._wait_for(kv)

    def _chunk(self, payload: memoryview) -> torch.Tensor:
        # The tensor keeps the view, and the view keeps the arena's map: it can never dangle.
        return self._torch.frombuffer(payload, dtype=self._dtype).view(self._chunk_shape)

    def _wait_for(self, tensor: torch.Tensor) -> None:
        if tensor.is_cuda:
            self._torch.cuda.current_stream(tensor.device).synchronize()
