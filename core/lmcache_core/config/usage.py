"""What the sources say about usage telemetry. Nothing here can stop a start-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from lmcache_core.config.origin import KeyPath, Layer
from lmcache_core.config.secrets import mask_address
from lmcache_core.config.words import truth
from lmcache_core.contracts.url import StoreURL

SWITCHES: Final = ("LMCACHE_TRACK_USAGE", "DO_NOT_TRACK")
"""Variables that can forbid telemetry."""

DEFAULT_INTERVAL_S: Final = 600.0
LEAST_INTERVAL_S: Final = 1.0

USAGE_KEYS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "track_usage": {
            "type": "boolean",
            "default": True,
            "description": "False forbids usage telemetry, whatever else is set.",
        },
        "usage_endpoint": {
            "type": "string",
            "format": "uri",
            "writeOnly": True,
            "description": "Your own collector of usage telemetry, http or https; without it nothing is sent.",
        },
        "usage_track_url": {
            "type": "string",
            "format": "uri",
            "writeOnly": True,
            "description": "LMCache's name for `usage_endpoint`.",
        },
        "usage_track_interval": {
            "type": "number",
            "default": DEFAULT_INTERVAL_S,
            "exclusiveMinimum": 0,
            "description": "Seconds between two reports of usage telemetry; at least 1.",
        },
    }
)
"""The keys as the JSON Schema has them. They are in no model, as a bad one is no reason not to start."""

_NOWHERE: Final = "default"
_NOT_SET: Final = frozenset({"", "0", "false"})
"""Values of ``DO_NOT_TRACK`` that do not switch it on; see consoledonottrack.com."""

_ENDPOINT_KEYS: Final = ("usage_endpoint", "usage_track_url")  # the second is LMCache's name for it
_INTERVAL_KEY: Final = "usage_track_interval"
_CONSENT_KEY: Final = "track_usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOptions:
    """Usage telemetry as configured, malformed values replaced by their defaults.

    Attributes:
        track_usage: False when the file or the command line says no, or nothing that can be read.
        track_source: Where that was written; ``default`` where nowhere.
        switches: Those of `SWITCHES` that are set.
        endpoint: The operator's own collector; None, the default, for nowhere.
        endpoint_source: Where that was written, such as ``env LMCACHE_USAGE_ENDPOINT``.
        interval_s: Seconds between two reports, at least `LEAST_INTERVAL_S`.
        interval_source: Where that was written; ``default`` where nowhere.
    """

    track_usage: bool = True
    track_source: str = _NOWHERE
    switches: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    endpoint: StoreURL | None = None
    endpoint_source: str = ""
    interval_s: float = DEFAULT_INTERVAL_S
    interval_source: str = _NOWHERE

    def rows(self) -> tuple[tuple[str, bool | float | str | None, str], ...]:
        """Give key, effective value and source of each; the address without credentials."""
        switch = forbidden_by(self.switches)
        allowed = (False, f"env {switch}") if switch else (self.track_usage, self.track_source)
        endpoint = None if self.endpoint is None else mask_address(str(self.endpoint))
        return (
            (_CONSENT_KEY, *allowed),
            (_ENDPOINT_KEYS[0], endpoint, self.endpoint_source or _NOWHERE),
            (_INTERVAL_KEY, self.interval_s, self.interval_source),
        )


def read_usage(*, document: Layer, environ: Mapping[str, str], overrides: Layer) -> UsageOptions:
    """Read the telemetry keys: command line over environment over file; a "no" to tracking counts from anywhere."""
    texts = {
        name.removeprefix("LMCACHE_").lower(): text
        for name, text in environ.items()
        if name.startswith("LMCACHE_USAGE_")
    }
    variables: dict[KeyPath, str] = {(key,): f"LMCACHE_{key.upper()}" for key in texts}
    layers = (overrides, Layer("env", dict(texts), variables=variables), document)
    endpoint, source = _endpoint(layers)
    track_usage, track_source = _consent(layers)
    interval_s, interval_source = _interval(layers)
    return UsageOptions(
        track_usage=track_usage,
        track_source=track_source,
        switches=MappingProxyType({name: environ[name] for name in SWITCHES if name in environ}),
        endpoint=endpoint,
        endpoint_source=source,
        interval_s=interval_s,
        interval_source=interval_source,
    )


def forbidden_by(environ: Mapping[str, str]) -> str:
    """Name the variable that forbids usage telemetry; ``""`` for none."""
    if environ.get("DO_NOT_TRACK", "").strip().lower() not in _NOT_SET:
        return "DO_NOT_TRACK"
    text = environ.get("LMCACHE_TRACK_USAGE", "")
    if text.strip() and truth(text) is not True:
        return "LMCACHE_TRACK_USAGE"
    return ""


def parse_endpoint(value: object) -> StoreURL | None:
    """Read a collector's address; None where it is no ``http://`` or ``https://`` address with a host."""
    if not isinstance(value, str):
        return None
    try:
        url = StoreURL.parse(value)
    except ValueError:
        return None
    return url if url.scheme in {"http", "https"} and url.host else None


def parse_interval_s(value: object) -> float | None:
    """Read a number of seconds above 0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _says_yes(value: object) -> bool:
    return value is True or (isinstance(value, str) and truth(value) is True)


def _endpoint(layers: tuple[Layer, ...]) -> tuple[StoreURL | None, str]:
    for layer in layers:
        for key in _ENDPOINT_KEYS:
            url = parse_endpoint(layer.tree.get(key))
            if url is not None:
                return url, layer.origin((key,)).label
    return None, ""


def _consent(layers: tuple[Layer, ...]) -> tuple[bool, str]:
    """A "no" counts from anywhere."""
    said = [layer for layer in layers if _CONSENT_KEY in layer.tree]
    decides = next((layer for layer in said if not _says_yes(layer.tree[_CONSENT_KEY])), said[0] if said else None)
    if decides is None:
        return True, _NOWHERE
    return _says_yes(decides.tree[_CONSENT_KEY]), decides.origin((_CONSENT_KEY,)).label


def _interval(layers: tuple[Layer, ...]) -> tuple[float, str]:
    for layer in layers:
        seconds = parse_interval_s(layer.tree.get(_INTERVAL_KEY))
        if seconds is not None:
            return max(LEAST_INTERVAL_S, seconds), layer.origin((_INTERVAL_KEY,)).label
    return DEFAULT_INTERVAL_S, _NOWHERE
