"""Keys of usage telemetry. A bad one is a warning and its default, never a reason not to start."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lmcache_core.config.nearest import suggestion
from lmcache_core.config.origin import Origin
from lmcache_core.config.usage import parse_endpoint, parse_interval_s
from lmcache_core.config.words import truth

KEY_OF_VARIABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LMCACHE_TRACK_USAGE": "track_usage",
        "LMCACHE_USAGE_TRACK_INTERVAL": "usage_track_interval",
        "LMCACHE_USAGE_TRACK_URL": "usage_track_url",
        "LMCACHE_USAGE_ENDPOINT": "usage_endpoint",
    }
)
_KEYS: Final = frozenset(KEY_OF_VARIABLE.values())
_KEY_PREFIX: Final = "usage_"
_VARIABLE_PREFIX: Final = "LMCACHE_USAGE_"


def owns_key(key: str) -> bool:
    """Tell whether a top-level key belongs to telemetry."""
    return key in _KEYS or key.startswith(_KEY_PREFIX)


def owns_variable(name: str) -> bool:
    """Tell whether a variable belongs to telemetry."""
    return name in KEY_OF_VARIABLE or (name.startswith(_VARIABLE_PREFIX) and name != "LMCACHE_USAGE_")


def judge_key(key: str, value: object, origin: Origin) -> str | None:
    """Give a warning about a key of the file or the command line; None where it is right."""
    about = origin.about((key,))
    if key not in _KEYS:
        return f"{about}: unknown telemetry key, ignored{suggestion(key, sorted(_KEYS))}"
    return _judge(key, value, about)


def judge_variable(name: str, text: str) -> str | None:
    """Give a warning about a variable; None where it is right."""
    if name not in KEY_OF_VARIABLE:
        return f"{name}: unknown telemetry variable, ignored{suggestion(name, KEY_OF_VARIABLE, show=str)}"
    return _judge(KEY_OF_VARIABLE[name], text, name)


def _judge(key: str, value: object, about: str) -> str | None:
    if key == "track_usage":
        fine = isinstance(value, bool) or (isinstance(value, str) and truth(value) is not None)
        return None if fine else f"{about}: must be true or false; taken as false, as consent must be clear"
    if key == "usage_track_interval":
        fine = parse_interval_s(value) is not None
        return None if fine else f"{about}: must be a number of seconds above 0; the default is used"
    fine = parse_endpoint(value) is not None
    return None if fine else f"{about}: must be an address such as https://collector.example; nothing is sent there"
