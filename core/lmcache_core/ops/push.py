"""Takes reports for the checks whose evidence comes from outside."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NoReturn

from lmcache_core.contracts.health import HealthState
from lmcache_core.contracts.push import PushedReport, PushHealthCheck
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.ops.access import AccessToken
from lmcache_core.ops.action import Action, Call
from lmcache_core.ops.page import Page, json_page, refusal

_PATH = "/health/checks/{name}/report"
_MOST_BODY_BYTES = 8 << 10
_MOST_REASON = 500
_MOST_DETAILS = 32
_MOST_KEY = 64
_MOST_TEXT = 200
_KEYS = ("healthy", "reason", "degraded", "details")


class PushDesk:
    """Hands reports to the checks that take them. Any thread.

    Args:
        monitor: Whose checks they are; woken by a report that says something new.
        access: Who may report.
    """

    def __init__(self, monitor: HealthMonitor, access: AccessToken) -> None:
        self._monitor = monitor
        self._access = access
        self._checks = monitor.named_checks()

    def actions(self) -> list[Action]:
        """Give the requests to be served."""
        return [Action(method="POST", path=_PATH, answer=self.report, most_body_bytes=_MOST_BODY_BYTES)]

    def report(self, call: Call) -> Page:
        """Take one report: 200; 401 without the token, 404 for no such check, 409 for one that runs by itself, 400."""
        objection = self._access.objection(call.headers)
        if objection is not None:
            return objection
        name = call.path["name"]
        check = self._checks.get(name)
        if check is None:
            return refusal(HTTPStatus.NOT_FOUND, _unknown(name, self._push_names()))
        if not isinstance(check, PushHealthCheck):
            return refusal(HTTPStatus.CONFLICT, f"check {name!r} runs by itself and takes no reports")
        try:
            report = parse_report(call.body)
        except ValueError as error:
            return refusal(HTTPStatus.BAD_REQUEST, f"report for check {name!r}: {error}")
        valid_s = check.take_report(report)
        if self._is_news(name, report):
            self._monitor.wake()
        return json_page({"check": name, "healthy": report.healthy, "valid_s": valid_s})

    def _push_names(self) -> list[str]:
        return sorted(name for name, check in self._checks.items() if isinstance(check, PushHealthCheck))

    def _is_news(self, name: str, report: PushedReport) -> bool:
        state = next((check.state for check in self._monitor.report().checks if check.name == name), None)
        return state is not _state_of(report)


def parse_report(body: bytes) -> PushedReport:
    """Read a report from JSON.

    Raises:
        ValueError: It is none; one sentence says what is wrong and what is due.
    """
    value = _parse(body)
    if not isinstance(value, dict):
        raise ValueError(f'the body must be a JSON object such as {{"healthy": true}}, got {_kind(value)}')  # noqa: TRY004 - one kind for all
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {_short(key)!r}{_nearest(key, _KEYS)}")
    if "healthy" not in value:
        raise ValueError("key 'healthy' is missing; it must be true or false")
    healthy = _switch(value, "healthy")
    degraded = _switch(value, "degraded") if "degraded" in value else False
    if degraded and not healthy:
        raise ValueError("key 'degraded' is true, so 'healthy' must be true as well: degraded works with a reservation")
    reason = _reason(value.get("reason", ""))
    if not healthy and not reason:
        raise ValueError("key 'reason' is missing; a report that is not healthy must say why, in one sentence")
    return PushedReport(healthy=healthy, reason=reason, degraded=degraded, details=_details(value.get("details", {})))


def _parse(body: bytes) -> object:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"the body must be JSON, which has no {constant}")

    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ValueError("the body must be JSON in UTF-8") from None
    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"the body must be JSON, and is none from character {error.pos} on") from None
    except RecursionError:
        raise ValueError("the body must be JSON, and is nested too deeply") from None


def _switch(value: Mapping[str, Any], key: str) -> bool:
    found = value[key]
    if not isinstance(found, bool):
        raise ValueError(f"key {key!r} must be true or false, got {_kind(found)}")  # noqa: TRY004 - one kind for all
    return found


def _reason(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"key 'reason' must be text, got {_kind(value)}")  # noqa: TRY004 - one kind for all
    return _line(value, "key 'reason'", _MOST_REASON)


def _details(value: object) -> dict[str, str | int | float | bool | None]:
    if not isinstance(value, dict):
        raise ValueError(f"key 'details' must be an object, got {_kind(value)}")  # noqa: TRY004 - one kind for all
    if len(value) > _MOST_DETAILS:
        raise ValueError(f"key 'details' must have {_MOST_DETAILS} entries at most, got {len(value)}")
    return {_line(key, "a key of 'details'", _MOST_KEY): _detail(key, found) for key, found in value.items()}


def _detail(key: str, value: object) -> str | int | float | bool | None:
    what = f"detail {_short(key)!r}"
    if isinstance(value, str):
        return _line(value, what, _MOST_TEXT)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what} is too large a number")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise ValueError(f"{what} must be text, a number, true, false or null, got {_kind(value)}")


def _line(text: str, what: str, most: int) -> str:
    """Bring a text onto one line; it is shown on terminals and in logs."""
    line = " ".join(text.split())
    if len(line) > most:
        raise ValueError(f"{what} must have {most} characters at most, got {len(line)}")
    if not line.isprintable():
        raise ValueError(f"{what} has characters that cannot be printed; leave them out")
    return line


def _state_of(report: PushedReport) -> HealthState:
    if not report.healthy:
        return HealthState.DOWN
    return HealthState.DEGRADED if report.degraded else HealthState.UP


def _unknown(name: str, known: list[str]) -> str:
    if not known:
        return f"no check takes reports; declare {_short(name)!r} in [[extra_config.push.checks]]"
    return f"no check {_short(name)!r} takes reports{_nearest(name, known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_KEY else text[:_MOST_KEY] + "..."


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
