"""The models of this session: their attention, and the names they may be reported by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmcache_core.contracts.event import Event
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.telemetry.attribution import UNKNOWN, architecture_of, joined, public_model_name
from lmcache_core.telemetry.messages import MPInstanceMessage
from lmcache_core.telemetry.samples import MOST_SERIES, OTHER, Series, event_tags


class KnownModels:
    """Learns from ``MP_KV_REGISTERED`` events. Written by the events' thread, read by the reporter's."""

    def __init__(self) -> None:
        self._architectures: dict[str, str] = {}
        self._announced: set[tuple[str, int]] = set()

    def register(self, event: Event) -> MPInstanceMessage | None:
        """Remember a model; give its message the first time that a model and world size are seen."""
        metadata = event.metadata
        name, world_size = str(metadata.get("model_name") or ""), int(metadata.get("world_size") or 1)
        if len(self._announced) >= MOST_SERIES or (name, world_size) in self._announced:
            return None
        self._announced.add((name, world_size))
        self._architectures[name] = architecture_of(metadata)
        return MPInstanceMessage(
            model_name=public_model_name(name),
            world_size=world_size,
            kv_dtypes=joined(metadata.get("kv_dtypes")),
            kv_shapes=_shapes(metadata.get("kv_shapes")),
            attn_windows=joined(metadata.get("attn_windows")),
            attn_arch=self._architectures[name],
            use_mla=metadata.get("use_mla") is True,
            model_type=public_model_name(metadata["model_type"]) if metadata.get("model_type") else "",
        )

    def tags(self, message: type[UsageMessage], series: Series) -> Mapping[str, str]:
        """Give a series' tags as they may be reported."""
        raw = dict(zip(event_tags(message), series, strict=True))
        return {name: self._tag(name, raw) for name in message.TAGS}

    def _tag(self, name: str, raw: Mapping[str, Any]) -> str:
        if name == "attn_arch":
            model = raw.get("model_name")
            return OTHER if model == OTHER else self._architectures.get(str(model or ""), UNKNOWN)
        value = raw[name]
        return UNKNOWN if value in {None, ""} and name != "model_name" else public_model_name(value)


def _shapes(value: object) -> str:
    """Write shapes as the message has them: ``2x32x256x1024;2x8x256x512``."""
    if isinstance(value, str) or value is None:
        return value or ""
    shapes = list(value) if isinstance(value, list | tuple) else []
    if shapes and all(isinstance(part, int) for part in shapes):
        return joined(shapes, "x")
    return joined((joined(shape, "x") for shape in shapes), ";")
