"""Which PEFT adapters act on a model at the moment; they change its KV as other weights would."""

from __future__ import annotations

from typing import Any

from lmcache_plugins.transformers.errors import NotCachedError


def full_variant(model: Any, variant: str) -> str:
    """Add to a caller's variant which adapters are active, disabled or merged right now.

    Args:
        model: Any; without adapters the variant is the caller's.
        variant: The caller's name of the weights, adapters included.

    Raises:
        NotCachedError: There are adapters, whose names do not tell their weights, and no variant.
    """
    if not getattr(model, "peft_config", None):
        return variant
    if not variant:
        raise NotCachedError("a PEFT adapter is loaded and no variant is given to tell its KV apart")
    states = {
        (layer.disable_adapters, tuple(layer.active_adapters), tuple(layer.merged_adapters))
        for layer in model.modules()
        if isinstance(getattr(layer, "disable_adapters", None), bool)  # a layer of PEFT; on a model it is a method
    }
    return f"{variant} {sorted(states)}"
