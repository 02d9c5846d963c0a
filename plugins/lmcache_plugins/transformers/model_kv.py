"""What KV a model keeps, found by asking it for a few tokens; what cannot be cached correctly is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lmcache_core import KVGroup, KVLayout, LayoutError
from lmcache_plugins.transformers.errors import NotCachedError
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT, new_cache
from lmcache_plugins.transformers.trial import Trial

_CACHE_KINDS = frozenset({None, "dynamic", "hybrid"})
"""Values of ``cache_implementation`` with which `generate` makes a `DynamicCache`; hybrid is an older name for none."""

_WINDOWED = "DynamicSlidingWindowLayer"
_LAYER_KINDS = {"DynamicLayer": "full"}

_MOVING_ROPE = ("dynamic", "longrope")
"""Rotary embeddings whose frequencies change with the length of the whole prompt, and earlier keys with them."""


@dataclass(frozen=True, slots=True)
class ModelKV:
    """The KV of one model, as its own forward made it.

    Attributes:
        layout: For the cache.
        dtype: Of K and V.
        devices: Of each layer's KV.
        padding_matters: Whether a row's KV depends on the padding before it.
    """

    layout: KVLayout
    dtype: torch.dtype
    devices: tuple[torch.device, ...]
    padding_matters: bool

    def check_padding(self, padding: Sequence[int]) -> None:
        """Raise `NotCachedError` where the KV of padded rows could not be used without that padding."""
        if self.padding_matters and any(padding):
            raise NotCachedError("there is padding, and this model's KV depends on it")


def examine(model: Any) -> ModelKV:
    """Look at the KV of a model, then try whether a prefix can be taken from it.

    Args:
        model: A causal language model of transformers.

    Raises:
        LayoutError: Says what of the model's KV cannot be cached correctly.
    """
    layout, devices = look(model)
    dtype: torch.dtype = getattr(torch, layout.dtype)
    return ModelKV(layout, dtype, devices, Trial(model, layout, devices).padding_matters())


def look(model: Any) -> tuple[KVLayout, tuple[torch.device, ...]]:
    """Run one token through a model and give the layout of the KV it keeps, and each layer's device.

    Args:
        model: A causal language model of transformers.

    Raises:
        LayoutError: Says what of the model's KV cannot be cached correctly, as far as its look tells.
    """
    name = type(model).__name__
    if getattr(model, "generation_config", None) is None:
        raise LayoutError(
            f"transformers: {name} does not generate; take a causal language model, as AutoModelForCausalLM makes"
        )
    _refuse_by_config(model, name)
    layers = _layers_after_one_token(model, name)
    _refuse_layers(layers, name)
    keys = layers[0].keys
    _, heads, _, size = keys.shape
    layout = KVLayout(
        num_layers=len(layers),
        num_kv_heads=heads,
        head_size=size,
        dtype=str(keys.dtype).removeprefix("torch."),
    )
    return layout, tuple(layer.keys.device for layer in layers)


def _refuse_by_config(model: Any, name: str) -> None:
    if model.config.is_encoder_decoder:
        raise LayoutError(
            f"transformers: {name} is an encoder-decoder model, whose KV depends on more than the tokens before it; "
            "call its own generate"
        )
    kind = getattr(model.generation_config, "cache_implementation", None)
    if kind not in _CACHE_KINDS:
        raise LayoutError(
            f"transformers: {name} generates with cache_implementation {kind!r}; only its default, DynamicCache, is "
            "filled from the cache, so unset it in the model's generation_config or call its own generate"
        )
    for parameters in _rope_parameters(model.config.get_text_config(decoder=True)):
        rope = parameters.get("rope_type", parameters.get("type"))
        if any(kind in str(rope) for kind in _MOVING_ROPE) or "mrope_section" in parameters:
            raise LayoutError(
                f"transformers: {name} has rotary embeddings of type {rope!r}, with which the keys of a prefix depend "
                "on what follows it; call its own generate"
            )


def _rope_parameters(config: Any) -> list[dict[str, Any]]:
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [part for part in found.values() if isinstance(part, dict)]
    return nested or [found]


def _layers_after_one_token(model: Any, name: str) -> Sequence[Any]:
    cache = new_cache(model)
    try:
        with torch.no_grad():
            tokens = torch.zeros((1, 1), dtype=torch.long, device=model.device)
            model(input_ids=tokens, use_cache=True, **{CACHE_ARGUMENT: cache})
    except Exception as error:
        raise LayoutError(
            f"transformers: {name} did not take one token with a DynamicCache: {type(error).__name__}: {error}; "
            "call its own generate"
        ) from error
    layers: Sequence[Any] = cache.layers
    return layers


def _refuse_layers(layers: Sequence[Any], name: str) -> None:
    if any(type(layer).__name__ == _WINDOWED for layer in layers):
        raise LayoutError(
            f"transformers: {name} has layers with a sliding window, whose cache keeps the KV of the last tokens only, "
            "so that it has no whole chunk; call its own generate"
        )
    kinds = [_LAYER_KINDS.get(type(layer).__name__, type(layer).__name__) for layer in layers]
    groups = tuple(KVGroup(name=kind, kind=kind, num_layers=kinds.count(kind)) for kind in dict.fromkeys(kinds))
    KVLayout(num_layers=max(1, len(layers)), num_kv_heads=1, head_size=1, dtype="float32", groups=groups)
    if not layers or any(layer.get_seq_length() != 1 for layer in layers):
        raise LayoutError(f"transformers: {name} keeps no KV in a DynamicCache; call its own generate")
    expected = _shape_of(layers[0].keys)
    for place, layer in enumerate(layers):
        for part, tensor in (("keys", layer.keys), ("values", layer.values)):
            if _shape_of(tensor) != expected:
                raise LayoutError(
                    f"transformers: {name} keeps {part} of {_shape_of(tensor)} in layer {place} but keys of {expected} "
                    "in layer 0; only equal ones are cached, so call its own generate"
                )


def _shape_of(tensor: torch.Tensor) -> str:
    _, heads, _, size = tensor.shape
    return f"{heads} heads of {size} {str(tensor.dtype).removeprefix('torch.')}"
