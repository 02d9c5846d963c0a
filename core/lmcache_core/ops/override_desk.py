"""Takes operators' orders to leave a backend out, and lists those in force."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from lmcache_core.errors import OverrideError
from lmcache_core.health.override import Override
from lmcache_core.health.overrides import Overrides, override_as_json
from lmcache_core.ops.access import AccessToken
from lmcache_core.ops.action import Action, Call
from lmcache_core.ops.page import Page, json_page, refusal

_PATH = "/health/overrides"
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "backend": str,
    "owner": str,
    "reason": str,
    "ttl_s": (int, float),
    "reads": bool,
    "writes": bool,
    "drain": bool,
    "timeout_s": (int, float),
    "by": str,
}
_NEEDED = ("backend", "owner", "reason", "ttl_s")
_LONGEST_DRAIN_S = 300.0
_LONGEST_BY = 63


class OverrideDesk:
    """Hands orders to the overrides. Any thread; a drain waits for the backend's queue.

    Args:
        overrides: Of this instance.
        access: Who may change them. Everybody may read them.
    """

    def __init__(self, overrides: Overrides, access: AccessToken) -> None:
        self._overrides = overrides
        self._access = access

    def actions(self) -> list[Action]:
        """Give the requests to be served."""
        return [
            Action(method="GET", path=_PATH, answer=self.show),
            Action(method="POST", path=_PATH, answer=self.add),
            Action(method="DELETE", path=_PATH + "/{backend}/{owner}", answer=self.remove),
        ]

    def show(self, _: Call) -> Page:
        """List what is in force."""
        active = [self._shown(one) for one in self._overrides.active()]
        return json_page({"overrides": active, "persistent": self._overrides.persistent})

    def add(self, call: Call) -> Page:
        """Put an order in force: 201; 401 without the token, 404 for no such backend, 400 for a wrong order."""
        objection = self._access.objection(call.headers)
        if objection is not None:
            return objection
        try:
            order = _parse(call.body)
            drain, timeout_s = order.pop("drain", False), order.pop("timeout_s", 30.0)
            if drain:
                order.pop("reads", None)
                order.pop("writes", None)
                override, flushed = self._overrides.drain(**order, timeout_s=min(timeout_s, _LONGEST_DRAIN_S))
                told: dict[str, Any] = {"flushed": flushed}
            else:
                override, told = self._overrides.add(**order), {}
        except OverrideError as error:
            return _refused(error)
        told |= {"override": self._shown(override), "persistent": self._overrides.persistent}
        return json_page({**told, "notes": self._notes()}, HTTPStatus.CREATED)

    def remove(self, call: Call) -> Page:
        """End an order: 200; 401 without the token, 404 where there is none."""
        objection = self._access.objection(call.headers)
        if objection is not None:
            return objection
        try:
            override = self._overrides.remove(
                call.path["backend"], owner=call.path["owner"], by=call.query.get("by", "")[:_LONGEST_BY]
            )
        except OverrideError as error:
            return _refused(error)
        return json_page({"removed": override_as_json(override)})

    def _shown(self, override: Override) -> dict[str, Any]:
        return {**override_as_json(override), "left_s": round(self._overrides.left_s(override), 3)}

    def _notes(self) -> list[str]:
        notes = []
        if not self._overrides.persistent:
            notes.append("it ends with the process, as no health_state_dir is configured or usable")
        if self._overrides.none_left:
            notes.append("every store is left out of reads now: only CPU memory serves")
        return notes


def _parse(body: bytes) -> dict[str, Any]:
    try:
        order = json.loads(body)
    except (ValueError, RecursionError):
        order = None
    if not isinstance(order, dict):
        raise OverrideError("the body is no JSON object")
    for name, value in order.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise OverrideError(f"{name}: unknown key; known: {', '.join(_KINDS)}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise OverrideError(f"{name}: {type(value).__name__} is not what it takes")
    missing = [name for name in _NEEDED if name not in order]
    if missing:
        raise OverrideError(f"missing: {', '.join(missing)}")
    timeout_s = order.get("timeout_s", 0.0)
    if not (math.isfinite(timeout_s) and timeout_s >= 0):
        raise OverrideError("timeout_s: write seconds, 0 or more")
    order["by"] = "".join(letter for letter in order.get("by", "") if letter.isprintable())[:_LONGEST_BY]
    return order


def _refused(error: OverrideError) -> Page:
    return refusal(HTTPStatus.NOT_FOUND if error.missing else HTTPStatus.BAD_REQUEST, str(error))
