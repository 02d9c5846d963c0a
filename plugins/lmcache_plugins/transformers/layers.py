"""A `DynamicCache` to plain KV tensors, ``[2, layers, tokens, hidden]``, and back."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, GenerationMixin

from lmcache_core import KVLayout, LayoutError

CACHE_ARGUMENT = (  # transformers renamed it in version 5
    "cache"
    if "cache" in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    else "past_key_values"
)
"""Name under which `generate` and a model's forward take a cache."""


@dataclass(frozen=True, slots=True)
class RowPrefix:
    """The restored beginning of one row of a batch.

    Attributes:
        padding: Columns before the row's first token.
        kv: ``[2, layers, n, hidden]``, or None where no column behind the padding is restored.
    """

    padding: int
    kv: torch.Tensor | None


def new_cache(model: Any) -> DynamicCache:
    """Make the empty cache that `generate` would make."""
    return DynamicCache(config=model.config.get_text_config(decoder=True))


def fill(
    cache: DynamicCache, layout: KVLayout, rows: Sequence[RowPrefix], columns: int, devices: Sequence[torch.device]
) -> None:
    """Put the first columns of a batch into an empty cache. Padding becomes zeros, which the mask hides.

    Args:
        cache: Empty; gets ``[rows, heads, columns, head size]`` a layer.
        layout: Of the KV.
        rows: One or more.
        columns: At least 1. Each row's KV covers ``columns - padding`` tokens or more.
        devices: Of each layer.
    """
    dtype = getattr(torch, layout.dtype)
    heads, size = layout.num_kv_heads, layout.head_size
    for place, device in enumerate(devices):
        both = torch.zeros((2, len(rows), heads, columns, size), dtype=dtype, device=device)
        for number, row in enumerate(rows):
            tokens = columns - row.padding
            if row.kv is not None and tokens > 0:
                part = row.kv[:, place, :tokens].unflatten(-1, (heads, size)).transpose(1, 2)
                both[:, number, :, row.padding :].copy_(part)
        cache.update(both[0], both[1], place)


def row_kv(cache: DynamicCache, layout: KVLayout, row: int, start: int, tokens: int) -> torch.Tensor:
    """Copy some tokens of one row: ``[rows, heads, columns, size]`` a layer to ``[2, layers, tokens, hidden]``.

    Args:
        cache: As `generate` leaves it.
        layout: Of the KV.
        row: Of the batch.
        start: Column of the first token.
        tokens: How many.

    Raises:
        LayoutError: The cache is not of this layout, or holds less.
    """
    _check(cache, layout, row, start + tokens)
    first = cache.layers[0].keys
    kv = torch.empty(layout.kv_shape(tokens), dtype=first.dtype, device=first.device)
    shape = (tokens, layout.num_kv_heads, layout.head_size)
    for place, layer in enumerate(cache.layers):
        for side, tensor in enumerate((layer.keys, layer.values)):
            kv[side, place].view(shape).copy_(tensor[row, :, start : start + tokens].transpose(0, 1))
    return kv


def _check(cache: DynamicCache, layout: KVLayout, row: int, columns: int) -> None:
    if len(cache.layers) != layout.num_layers:
        raise LayoutError(f"the cache has {len(cache.layers)} layers, the layout {layout.num_layers}")
    expected = (layout.num_kv_heads, layout.head_size)
    for place, layer in enumerate(cache.layers):
        if type(layer).__name__ != "DynamicLayer":
            raise LayoutError(f"layer {place} is a {type(layer).__name__}; only a DynamicLayer keeps whole prefixes")
        rows, heads, held, size = layer.keys.shape
        if (heads, size) != expected or rows <= row or held < columns:
            raise LayoutError(
                f"layer {place} holds {rows} rows, {heads} heads of {size}, {held} tokens; expected row {row}, "
                f"{expected[0]} heads of {expected[1]}, at least {columns} tokens"
            )
