"""The prompts of one call to `generate`, and whether the cache may have to do with it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import transformers
from packaging.version import Version
from transformers import GenerationMixin

from lmcache_plugins.transformers.errors import NotCachedError

Tokens: TypeAlias = "npt.NDArray[np.int64]"

_MODES = frozenset({"greedy_search", "sample", "beam_search", "beam_sample"})
"""Ways to generate that only ever append to the cache or choose among its rows."""

_DEFAULT_CACHE = "dynamic"
"""The name of the cache that `generate` makes without one."""

_TOKEN_INPUTS = frozenset({"input_ids", "attention_mask"})
"""Inputs of a model whose KV is told by its tokens alone."""

_TAKEN_OUT = frozenset({"tokenizer", "assistant_tokenizer", "trust_remote_code", "use_model_defaults"})
"""Arguments that `generate` takes out before it looks for options."""

_CHUNKED_PREFILL_RESUMES = Version(transformers.__version__) >= Version("5.24")
"""Whether a prefill in slices goes on behind a restored prefix; older versions begin anew."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A batch of token prompts, padded on the left.

    Attributes:
        tokens: ``[rows, columns]``.
        padding: Columns before each row's first token.
        copies: Sequences that `generate` makes of each row: beams or answers.
        slice_tokens: Columns of one step of the prefill; 0 for one step.
        names_cache: Whether the default cache is asked for by name, which `generate` refuses beside a cache given.
        streamer: Who is to hear the prompt and the answer, or None.
    """

    tokens: Tokens
    padding: tuple[int, ...]
    copies: int
    slice_tokens: int
    names_cache: bool
    streamer: Any

    @property
    def columns(self) -> int:
        """Length of the longest row."""
        return int(self.tokens.shape[1])

    def row(self, number: int) -> Tokens:
        """Tokens of one row without its padding."""
        return self.tokens[number, self.padding[number] :]


def read_prompt(model: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Prompt:
    """Find the prompts in the arguments of a call to `generate`.

    Args:
        model: Whose `generate` it is.
        args: Positional arguments.
        options: Named arguments.

    Raises:
        NotCachedError: Something about the call needs the model's own `generate`, alone.
    """
    named, config, inputs = _merge(model, args, options)
    _refuse_config(config, named.get("assistant_model"))
    unknown = sorted(name for name, value in inputs.items() if value is not None and name not in _TOKEN_INPUTS)
    unknown += [name for name in ("custom_generate",) if named.get(name) is not None]
    if unknown:
        raise NotCachedError(f"generate was given {', '.join(unknown)}")
    tokens = named.get("inputs") if named.get("inputs") is not None else inputs.get("input_ids")
    if tokens is None or not _is_prompt(tokens):
        raise NotCachedError("the prompt is not a tensor of token ids, [rows, tokens]")
    return Prompt(
        tokens=tokens.cpu().numpy().astype(np.int64, copy=False),
        padding=_padding(tokens, inputs.get("attention_mask"), config),
        copies=max(config.num_beams or 1, config.num_return_sequences or 1),
        slice_tokens=config.prefill_chunk_size or 0,
        names_cache=config.cache_implementation is not None,
        streamer=named.get("streamer"),
    )


def _is_prompt(tokens: Any) -> bool:
    matrix = isinstance(tokens, torch.Tensor) and tokens.ndim == 2 and tokens.numel() > 0  # noqa: PLR2004 - rows, columns
    return matrix and not tokens.is_floating_point()


def _merge(model: Any, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Give the named parameters of `generate`, the configuration in force, and the model's inputs."""
    signature = _signature(model)
    named = dict(signature.bind_partial(*args, **options).arguments)
    rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
    further = {name: value for name, value in named.pop(rest, {}).items() if name not in _TAKEN_OUT}
    # Only generate itself knows how its three sources of options are merged; a version that
    # has no such method makes every call run uncached, never wrong.
    config, inputs = model._prepare_generation_config(named.get("generation_config"), **further)  # noqa: SLF001
    return named, config, inputs


def _signature(model: Any) -> inspect.Signature:
    """What `generate` takes; a `PeftModel`'s hands everything on."""
    signature = inspect.signature(model.generate)
    if any(p.kind is p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values()):
        return signature
    return inspect.signature(GenerationMixin.generate.__get__(model))


def _refuse_config(config: Any, assistant: Any) -> None:
    mode = str(getattr(config.get_generation_mode(assistant), "value", ""))
    if mode not in _MODES:
        raise NotCachedError(f"generation mode {mode!r}")
    if config.use_cache is False:
        raise NotCachedError("use_cache is off")
    if config.cache_implementation not in {None, _DEFAULT_CACHE}:
        raise NotCachedError(f"cache_implementation is {config.cache_implementation!r}")
    for name in ("output_attentions", "output_hidden_states"):  # of the whole prompt, restored or not
        if getattr(config, name):
            raise NotCachedError(f"generate was given {name}")
    if config.token_healing:
        raise NotCachedError("token_healing rewrites the prompt")
    if config.prefill_chunk_size and not _CHUNKED_PREFILL_RESUMES:
        raise NotCachedError("prefill_chunk_size needs transformers 5.24 to go on behind a prefix")


def _padding(tokens: torch.Tensor, mask: Any, config: Any) -> tuple[int, ...]:
    if mask is None:
        pad, ends = config.pad_token_id, config.eos_token_id
        told_apart = pad is not None and pad not in (ends if isinstance(ends, list) else [ends])
        if told_apart and bool((tokens == pad).any()):
            raise NotCachedError("there are pad tokens in the prompt and no attention_mask")
        return (0,) * len(tokens)
    if not isinstance(mask, torch.Tensor) or mask.shape != tokens.shape or not bool(((mask == 0) | (mask == 1)).all()):
        raise NotCachedError("the attention_mask is not one of zeros and ones for each token of the prompt")
    seen = mask.to(torch.long)
    if not bool((seen.diff(dim=1) >= 0).all()) or not bool(seen[:, -1].all()):
        raise NotCachedError("the attention_mask hides more than padding on the left")
    return tuple((seen.shape[1] - seen.sum(dim=1)).tolist())
