"""Hugging Face `DynamicCache` to a plain KV tensor and back."""

from __future__ import annotations

from typing import Any

import torch

from lmcache_core.contracts.layout import KVGroup, KVLayout
from lmcache_core.errors import LayoutError

try:
    from transformers import DynamicCache
except ImportError as error:
    raise ImportError(
        "the DynamicCache adapter needs 'transformers'; run: pip install 'lmcache-core[transformers]'"
    ) from error


class DynamicCacheAdapter:
    """Converts the cache of a causal LM whose layers all keep full attention. Any thread.

    Args:
        layout: From `layout_of`, or your own.
    """

    def __init__(self, layout: KVLayout) -> None:
        if layout.use_mla:
            raise LayoutError("DynamicCache keeps K and V; an mla layout cannot be converted, use plain tensors")
        self._layout = layout

    @staticmethod
    def layout_of(config: Any, dtype: str) -> KVLayout:
        """Derive the layout from a model's configuration.

        Args:
            config: A `transformers` model configuration.
            dtype: torch name of the KV's type, such as ``float32``.

        Raises:
            LayoutError: The model has layers other than full attention; names them.
        """
        text = config.get_text_config()
        kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
        groups = tuple(
            KVGroup(name=kind, kind="full" if kind == "full_attention" else kind, num_layers=kinds.count(kind))
            for kind in dict.fromkeys(kinds)
        )
        if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
            groups = (KVGroup(name="sliding_window", kind="sliding_attention", num_layers=len(kinds)),)
        heads = text.num_attention_heads
        return KVLayout(
            num_layers=text.num_hidden_layers,
            num_kv_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_size=getattr(text, "head_dim", None) or text.hidden_size // heads,
            dtype=dtype,
            groups=groups,
        )

    def to_tensor(self, cache: DynamicCache, tokens: int) -> torch.Tensor:
        """Copy the first tokens of a cache: ``[1, heads, n, size]`` a layer to ``[2, layers, n, hidden]``.

        Raises:
            LayoutError: Another number of layers, batch, heads or tokens than the layout's.
        """
        self._check(cache, tokens)
        first = cache.layers[0].keys
        kv = torch.empty(self._layout.kv_shape(tokens), dtype=first.dtype, device=first.device)
        shape = (tokens, self._layout.num_kv_heads, self._layout.head_size)
        for place, layer in enumerate(cache.layers):
            kv[0, place].view(shape).copy_(layer.keys[0, :, :tokens].transpose(0, 1))
            kv[1, place].view(shape).copy_(layer.values[0, :, :tokens].transpose(0, 1))
        return kv

    def from_tensor(self, kv: torch.Tensor, tokens: int) -> DynamicCache:
        """Make a cache that holds the first tokens of a KV tensor; the bytes are copied once."""
        cache = DynamicCache()
        shape = (tokens, self._layout.num_kv_heads, self._layout.head_size)
        for place in range(self._layout.num_layers):
            keys, values = (
                kv[side, place, :tokens].reshape(shape).transpose(0, 1)[None].contiguous() for side in (0, 1)
            )
            cache.update(keys, values, place)
        return cache

    def _check(self, cache: DynamicCache, tokens: int) -> None:
        if len(cache.layers) != self._layout.num_layers:
            raise LayoutError(f"the cache has {len(cache.layers)} layers, the layout {self._layout.num_layers}")
        for place, layer in enumerate(cache.layers):
            if type(layer).__name__ != "DynamicLayer":
                raise LayoutError(
                    f"layer {place} is a {type(layer).__name__}, whose state cannot be rebuilt from a prefix's "
                    "chunks; only DynamicLayer (full attention) is cached"
                )
            batch, heads, held, size = layer.keys.shape
            if (batch, heads, size) != (1, self._layout.num_kv_heads, self._layout.head_size) or held < tokens:
                raise LayoutError(
                    f"layer {place} holds batch {batch}, {heads} heads of {size}, {held} tokens; expected batch 1, "
                    f"{self._layout.num_kv_heads} heads of {self._layout.head_size}, at least {tokens} tokens"
                )
