"""Greedy generation, with a prefix that may come from the cache, and how it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lmcache_core import CacheManager
from lmcache_plugins.transformers.generation import CachedGeneration

SLICE_TOKENS = 256
"""Tokens of one step of the prefill, a chunk of the cache: equal slices make equal bits, cold or warm. A whole prompt
ends within a slice: it is restored as far as it is known, and the rest computed in one step."""


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


class Watch:
    """Times the first token and moves the progress bars: a streamer, and a hook behind each step of the model."""

    def __init__(self, prompt_tokens: int, limit_tokens: int, progress: Callable[[str, int, int], None]) -> None:
        self._prompt_tokens = prompt_tokens
        self._limit_tokens = limit_tokens
        self._progress = progress
        self._answer_tokens = -1  # the prompt is streamed first
        self._start = time.perf_counter()
        self.first_token_s = 0.0

    def put(self, _tokens: Any) -> None:
        """Hear of the prompt, or of one token more."""
        self._answer_tokens += 1
        if self._answer_tokens == 1:
            self.first_token_s = time.perf_counter() - self._start
        if self._answer_tokens:
            self._progress("answer", self._answer_tokens, self._limit_tokens)

    def end(self) -> None:
        """Hear of the end, which may come early."""
        self._progress("answer", self._limit_tokens, self._limit_tokens)

    def after_step(self, _model: Any, _inputs: Any, output: Any) -> None:
        """Hear that the model has read more of the prompt, or its own last token."""
        read_tokens = output.get("cache", output.get("past_key_values")).get_seq_length()  # renamed in transformers 5
        if read_tokens <= self._prompt_tokens:
            self._progress("read", read_tokens, self._prompt_tokens)


class Generator:
    """A model, with a cache beside it or without one.

    Args:
        model: A causal language model of transformers.
        manager: The cache; None for none.
        progress: Told a stage, the tokens done and all of them.
        whole: Whether the cache keeps whole prompts.
    """

    def __init__(
        self,
        model: Any,
        manager: CacheManager | None,
        progress: Callable[[str, int, int], None],
        *,
        whole: bool = False,
    ) -> None:
        self._model = model
        self._whole = whole
        self._cached = CachedGeneration(model, manager.engine) if manager is not None else None
        self._progress = progress

    def answer(self, prompt: list[int], *, limit_tokens: int, request_id: str) -> Generated:
        """Read a prompt and answer it."""
        tokens = torch.tensor([prompt])
        watch = Watch(len(prompt), limit_tokens, self._progress)
        options: dict[str, Any] = {
            "attention_mask": torch.ones_like(tokens),
            "do_sample": False,
            "max_new_tokens": limit_tokens,
            "streamer": watch,
        }
        if not self._whole:
            options["prefill_chunk_size"] = SLICE_TOKENS
        with self._model.register_forward_hook(watch.after_step):
            if self._cached is None:
                made, reused_tokens, stored_tokens = self._model.generate(tokens, **options), 0, 0
            else:
                made = self._cached.generate(tokens, request_id=request_id, **options)
                reused_tokens, stored_tokens = self._cached.last.reused_tokens, self._cached.last.stored_tokens
        return Generated(made[0, len(prompt) :].tolist(), reused_tokens, watch.first_token_s, stored_tokens)
