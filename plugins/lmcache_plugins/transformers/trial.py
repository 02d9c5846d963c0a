"""A trial of a model on a few tokens: does the KV of a prefix depend on the prefix alone?

No configuration says so. A model that reads a prompt in both directions, that keeps more than KV, or that counts
its positions from the first column of a batch looks like any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig

from lmcache_core import KVLayout, LayoutError
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT, RowPrefix, fill, new_cache, row_kv

_TOKENS, _PREFIX_TOKENS = 12, 5
_PADDING = _TOKENS - _PREFIX_TOKENS - 2

_EXACT, _ROUNDED, _LOGITS = 1e-3, 0.05, 4.0
"""Relative differences of KV that rounding explains, in float32 and in two bytes, and how much larger those of logits
may be. SmolLM2 shows 4e-6 and 0.009, and 4 times that in its logits; an expert that changes adds to it."""

_ONE_STEP = {
    "max_new_tokens": 1,
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "use_cache": True,
    "token_healing": False,
    "return_dict_in_generate": True,
    "output_logits": True,
}


@dataclass(frozen=True, slots=True)
class _Step:
    """What `generate` made of a batch: the cache behind the prompts, and the next token's logits, a row each."""

    cache: DynamicCache
    logits: torch.Tensor


class Trial:
    """Has a model generate one token from a few, several times. Draws no random numbers.

    Args:
        model: A causal language model of transformers.
        layout: Of its KV.
        devices: Of each layer's KV.
    """

    def __init__(self, model: Any, layout: KVLayout, devices: tuple[torch.device, ...]) -> None:
        self._model = model
        self._name = type(model).__name__
        self._layout = layout
        self._devices = devices
        self._tolerance = _tolerance(getattr(torch, layout.dtype))
        self._tokens = _plain_tokens(model)

    def padding_matters(self) -> bool:
        """Whether a row's KV depends on the padding before it, so that only rows without any can be cached.

        Raises:
            LayoutError: A prefix's KV depends on what follows it, or is not all that the model keeps of it.
        """
        with _eval_mode(self._model):
            if self._holds_in_a_batch():
                return False
            self._check_without_padding()
        return True

    def _holds_in_a_batch(self) -> bool:
        """Whether all is well, told by few steps: alone, in a batch with padding, and going on in each."""
        tokens, ends = self._tokens, _PADDING + _PREFIX_TOKENS
        rows = torch.full((2, _TOKENS), _pad_token(self._model))
        rows[0, _PADDING:], rows[1] = tokens[: _TOKENS - _PADDING], tokens
        rows[0, ends:] = tokens[ends:].flip(0)  # another end behind the same prefix
        mask = torch.ones_like(rows)
        mask[0, :_PADDING] = 0
        try:
            batch = self._step(rows, mask)
            prefix, begun = self._kv(batch, 0, _PADDING, _PREFIX_TOKENS), self._kv(batch, 1, 0, ends)
            if self._differ(prefix, begun[:, :, :_PREFIX_TOKENS]):
                return False
            warm = self._step(rows, mask, self._restored([RowPrefix(_PADDING, prefix), RowPrefix(0, begun)], ends))
            if not all(self._alike(warm, row, batch, row, ends) for row in (0, 1)):
                return False
            whole = self._step(tokens[None])
            return self._alike(batch, 1, whole, 0, 0) and self._goes_on(begun[:, :, :_PREFIX_TOKENS], whole)
        except Exception:  # noqa: BLE001 - some models take no padding; the steps without it raise if need be
            return False

    def _check_without_padding(self) -> None:
        try:
            prefix = self._kv(self._step(self._tokens[None, :_PREFIX_TOKENS]), 0, 0, _PREFIX_TOKENS)
            whole = self._step(self._tokens[None])
            sees_on = self._differ(prefix, self._kv(whole, 0, 0, _PREFIX_TOKENS))
            goes_on = self._goes_on(prefix, whole)
        except Exception as error:
            raise LayoutError(
                f"transformers: {self._name} did not generate from a prefix in a DynamicCache: "
                f"{type(error).__name__}: {error}; call its own generate"
            ) from error
        if sees_on:
            raise LayoutError(
                f"transformers: {self._name} computes the KV of a prefix from what follows it too, as encoders do; "
                "call its own generate"
            )
        if not goes_on:
            raise LayoutError(
                f"transformers: {self._name} generates something else from the KV of a prefix than from the prefix, as "
                "with state beside its KV; call its own generate"
            )

    def _goes_on(self, prefix: torch.Tensor, whole: _Step) -> bool:
        """Whether the rest of the prompt, computed alone behind the restored prefix, is as in the whole."""
        warm = self._step(self._tokens[None], None, self._restored([RowPrefix(0, prefix)], _PREFIX_TOKENS))
        return self._alike(warm, 0, whole, 0, _PREFIX_TOKENS)

    def _restored(self, rows: list[RowPrefix], columns: int) -> DynamicCache:
        cache = new_cache(self._model)
        fill(cache, self._layout, rows, columns, self._devices)
        return cache

    def _step(self, rows: torch.Tensor, mask: torch.Tensor | None = None, cache: DynamicCache | None = None) -> _Step:
        mask = torch.ones_like(rows) if mask is None else mask
        device = self._model.device
        given = {} if cache is None else {CACHE_ARGUMENT: cache}
        options = {**_plain_options(self._model), **_ONE_STEP, **given}
        answer = self._model.generate(input_ids=rows.to(device), attention_mask=mask.to(device), **options)
        return _Step(getattr(answer, CACHE_ARGUMENT), answer.logits[0].float())

    def _alike(self, warm: _Step, warm_row: int, cold: _Step, cold_row: int, start: int) -> bool:
        """Whether two rows have the same KV from a column on, and the same logits."""
        if self._differ(
            *(self._kv(step, row, start, _TOKENS - start) for step, row in ((warm, warm_row), (cold, cold_row)))
        ):
            return False
        lines = (warm.logits[warm_row], cold.logits[cold_row])
        ours, theirs = ((line - line.mean()).view(1, 1, 1, -1) for line in lines)
        return not self._differ(ours, theirs, _LOGITS)

    def _kv(self, step: _Step, row: int, start: int, tokens: int) -> torch.Tensor:
        return row_kv(step.cache, self._layout, row, start, tokens)

    def _differ(self, ours: torch.Tensor, theirs: torch.Tensor, larger: float = 1.0) -> bool:
        """Whether two ``[2, layers, tokens, hidden]`` are further apart than rounding, in the mean of the layers."""
        apart = (ours.float() - theirs.float()).norm(dim=(2, 3))
        size = theirs.float().norm(dim=(2, 3)).clamp_min(torch.finfo(torch.float32).tiny)
        return bool((apart / size).mean() > larger * self._tolerance)


def _tolerance(dtype: torch.dtype) -> float:
    whole = dtype.itemsize > 2 and torch.get_float32_matmul_precision() == "highest"  # noqa: PLR2004 - bytes
    return _EXACT if whole else _ROUNDED


def _plain_options(model: Any) -> dict[str, Any]:
    """Undo whatever a model's `generation_config` says but of special tokens: that is for its calls, each by itself."""
    own = model.generation_config
    return {
        name: plain
        for name, plain in vars(GenerationConfig()).items()
        if not name.startswith("_")
        and not name.endswith("_token_id")
        and name != "transformers_version"
        and getattr(own, name, plain) != plain
    }


def _plain_tokens(model: Any) -> torch.Tensor:
    """Distinct tokens from the middle of the vocabulary, where no special ones are."""
    vocabulary = int(model.config.get_text_config(decoder=True).vocab_size)
    pad = _pad_token(model)
    plain = [token for token in range(vocabulary // 4, vocabulary) if token != pad] or [0]
    step = max(1, len(plain) // (2 * _TOKENS))
    return torch.tensor([plain[number * step % len(plain)] for number in range(_TOKENS)])


def _pad_token(model: Any) -> int:
    pad = getattr(model.config.get_text_config(decoder=True), "pad_token_id", None)
    return pad if isinstance(pad, int) and pad >= 0 else 0


@contextlib.contextmanager
def _eval_mode(model: Any) -> Iterator[None]:
    """Without dropout, which would make any two steps differ; each module gets its mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
