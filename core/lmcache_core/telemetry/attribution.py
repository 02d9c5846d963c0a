"""Which kind of attention a model has, and by what name it may be reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

UNKNOWN: Final = "unknown"
PRIVATE: Final = "private"

_SPARSE_TYPES: Final = frozenset({"deepseek_v32", "glm_moe_dsa"})
"""``model_type`` of models with DeepSeek sparse attention: their layout looks like any other MLA."""

_KINDS: Final = MappingProxyType(
    {
        **dict.fromkeys(("recurrent", "linear", "linear_attention", "mamba", "gated_delta_net"), "linear"),
        **dict.fromkeys(("sliding_window", "sliding", "swa", "chunked_local"), "swa"),
        "aux": "",
    }
)
"""What a group's kind says by itself; of those in `_PLAIN_KINDS` the window decides."""

_PLAIN_KINDS: Final = frozenset({"attention", "full", "mla"})

_PUBLIC_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,95}(/[A-Za-z0-9][A-Za-z0-9_.\-]{0,95})?")


def attention_architecture(group_kinds: Iterable[str], windows: Iterable[int], model_type: str = "") -> str:
    """Name the attention of a model from its groups of layers.

    A group's kind says more than its window: a window of one chunk is either linear attention or a
    sliding window that short. Only where no kind is told does the window decide.

    Args:
        group_kinds: Of each group; empty when not told.
        windows: Of each group, in chunks; -1 for all. Empty when not told.
        model_type: Of the model's configuration in Hugging Face's words.

    Returns:
        ``full``, ``full+swa``, ``swa``, ``full+linear``, ``linear``, ``dsa`` or ``unknown``.
    """
    if model_type in _SPARSE_TYPES:
        return "dsa"
    kinds, spans = list(group_kinds), list(windows)
    count = max(len(kinds), len(spans))
    found = {
        _group(kinds[place] if place < len(kinds) else "", spans[place] if place < len(spans) else None)
        for place in range(count)
    } - {""}
    if not found or UNKNOWN in found:
        return UNKNOWN
    extra = "linear" if "linear" in found else "swa" if "swa" in found else ""
    if not extra:
        return "full"
    return f"full+{extra}" if "full" in found else extra


def _group(kind: str, window: int | None) -> str:
    if kind in _KINDS:
        return _KINDS[kind]
    if kind and kind not in _PLAIN_KINDS:
        return UNKNOWN
    if window == -1 or (window is None and kind):
        return "full"
    if window is None or window < 1:
        return UNKNOWN
    return "linear" if window == 1 and not kind else "swa"


def public_model_name(name: object) -> str:
    """Give a model's name if it can be a public one, ``org/name`` or ``name``; else ``private``.

    A path, an address, anything with spaces, and a name that is a folder here stay on the machine.
    """
    if not isinstance(name, str) or _PUBLIC_NAME.fullmatch(name) is None or ".." in name:
        return PRIVATE
    if "/" in name and Path(name).exists():
        return PRIVATE
    return name


def joined(value: object, separator: str = ",") -> str:
    """Write a list of an event on one line; text stays as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return separator.join(str(part) for part in value)
    return ""


def numbers(value: object) -> list[int]:
    """Read the windows of an event: a list, or text with commas. What is no number is window 0, which is none."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else []
    return [
        int(text) if (text := str(part).strip()).lstrip("-").isdigit() else 0 for part in parts if str(part).strip()
    ]


def names(value: object) -> list[str]:
    """Read the kinds of an event: a list, or text with commas."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else []
    return [str(part).strip() for part in parts if str(part).strip()]


def architecture_of(metadata: Mapping[str, Any]) -> str:
    """Name the attention of the model that an ``MP_KV_REGISTERED`` event is about."""
    return attention_architecture(
        names(metadata.get("group_kinds")),
        numbers(metadata.get("attn_windows")),
        str(metadata.get("model_type") or ""),
    )
