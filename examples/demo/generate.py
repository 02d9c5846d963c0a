"""Greedy generation, with a prefix that may come from the cache."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from lmcache_core import CacheManager, KVLayout
from lmcache_core.adapters.dynamic_cache import DynamicCacheAdapter

SLICE_TOKENS = 256
"""Tokens of one step of the prefill, a chunk of the cache: equal slices make equal bits, cold or warm."""


@dataclass(frozen=True)
class Generated:
    """One answer.

    Attributes:
        tokens: Of the answer.
        reused_tokens: Of the prompt, whose KV came from the cache.
        first_token_s: From the request to the first token of the answer.
        stored_tokens: Newly kept by the cache.
    """

    tokens: list[int]
    reused_tokens: int
    first_token_s: float
    stored_tokens: int


class Generator:
    """A model, with a cache beside it or without one.

    Args:
        model: A causal language model of transformers.
        layout: Of the model's KV.
        manager: The cache; None for none.
        progress: Told a stage, the tokens done and all of them.
    """

    def __init__(
        self,
        model: Any,
        layout: KVLayout,
        manager: CacheManager | None,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._model = model
        self._layout = layout
        self._adapter = DynamicCacheAdapter(layout)
        self._manager = manager
        self._progress = progress
        parameters = inspect.signature(type(model).forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"  # renamed in transformers 5

    @torch.inference_mode()
    def answer(self, prompt: list[int], *, limit_tokens: int, request_id: str) -> Generated:
        """Read a prompt and answer it."""
        tokens = np.asarray(prompt, dtype=np.int64)
        start = time.perf_counter()
        cache, reused_tokens = self._reuse(tokens, request_id)
        answer = [self._prefill(prompt, cache, reused_tokens)]
        first_token_s = time.perf_counter() - start
        stored_tokens = self._keep(tokens, cache)
        while len(answer) < limit_tokens and answer[-1] != self._model.config.eos_token_id:
            answer.append(self._step([answer[-1]], cache))
            self._progress("answer", len(answer), limit_tokens)
        self._progress("answer", limit_tokens, limit_tokens)
        return Generated(answer, reused_tokens, first_token_s, stored_tokens)

    def _reuse(self, tokens: Any, request_id: str) -> tuple[DynamicCache, int]:
        """Take the longest known prefix from the cache; the last token must be computed to have an answer."""
        if self._manager is None:
            return DynamicCache(), 0
        hit_tokens = self._manager.engine.lookup(tokens[:-1], request_id=request_id)
        if not hit_tokens:
            return DynamicCache(), 0
        kv = torch.empty(self._layout.kv_shape(hit_tokens), dtype=torch.float32)
        mask = self._manager.engine.retrieve(tokens[:hit_tokens], kv, request_id=request_id)
        delivered_tokens = int(mask.sum())
        if not delivered_tokens:
            return DynamicCache(), 0
        return self._adapter.from_tensor(kv, delivered_tokens), delivered_tokens

    def _prefill(self, prompt: list[int], cache: DynamicCache, reused_tokens: int) -> int:
        token = 0
        self._progress("read", reused_tokens, len(prompt))
        for start in range(reused_tokens, len(prompt), SLICE_TOKENS):
            piece = prompt[start : start + SLICE_TOKENS]
            token = self._step(piece, cache)
            self._progress("read", start + len(piece), len(prompt))
        return token

    def _step(self, tokens: list[int], cache: DynamicCache) -> int:
        output = self._model(
            input_ids=torch.tensor([tokens]), use_cache=True, logits_to_keep=1, **{self._cache_argument: cache}
        )
        return int(output.logits[0, -1].argmax())

    def _keep(self, tokens: Any, cache: DynamicCache) -> int:
        if self._manager is None:
            return 0
        stored_tokens: int = self._manager.engine.store(tokens, self._adapter.to_tensor(cache, len(tokens)))
        return stored_tokens
