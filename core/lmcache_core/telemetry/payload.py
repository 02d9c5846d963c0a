"""From a message to the bytes that are sent."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from lmcache_core.contracts.message import UsageMessage
from lmcache_core.telemetry.messages import SCHEMA_VERSION
from lmcache_core.version import __version__

_INT_LIMIT = 1 << 63
_LONGEST_TEXT = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UsageIdentity:
    """What every payload is stamped with.

    Attributes:
        session_id: Random, of this session.
        machine_id: Random, of this user on this machine; ``""`` where it cannot be kept.
        deployment_mode: ``single_process`` or ``mp_server``.
    """

    session_id: str
    machine_id: str
    deployment_mode: str


def build_usage_payload(message: UsageMessage, identity: UsageIdentity) -> dict[str, Any]:
    """Flatten a message and stamp it.

    Raises:
        ValueError: A field holds something else than its type says; names message and field, never the value.
    """
    payload: dict[str, Any] = {
        "message_type": type(message).__name__,
        "schema_version": SCHEMA_VERSION,
        "lmcache_version": __version__,
        "deployment_mode": identity.deployment_mode,
        "session_id": identity.session_id,
        "machine_id": identity.machine_id,
    }
    for found in dataclasses.fields(message):
        payload[found.name] = fit(
            getattr(message, found.name), str(found.type), f"{type(message).__name__}.{found.name}"
        )
    return payload


def encode(payload: Mapping[str, Any]) -> bytes:
    """Write a payload as it is sent: one line of JSON, keys in order."""
    return json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()


def fit(value: object, kind: str, where: str) -> Any:
    """Give a value as its field's declared type, so that a field has one type for ever.

    Args:
        value: ``3.0`` fits ``int``, ``3`` fits ``float``, True fits neither.
        kind: ``int``, ``float``, ``str``, ``bool`` or ``dict[str, int]``.
        where: Begins the error's sentence.

    Raises:
        ValueError: It does not fit: no number, not finite, beyond 64 bits, or text of another kind.
    """
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "str" and isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if kind == "dict[str, int]" and isinstance(value, Mapping):
        return {_text(name, where): fit(count, "int", where) for name, count in value.items()}
    if kind in {"int", "float"} and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{where}: is not finite")
        if kind == "float":
            return float(value)
        if value == int(value) and abs(value) < _INT_LIMIT:
            return int(value)
    raise ValueError(f"{where}: a value of type {type(value).__name__!r} does not fit {kind}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: a histogram's bound must be text")  # noqa: TRY004 - a wrong value, like its siblings
    return value
