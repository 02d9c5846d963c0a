"""One answer, whatever asked for it; knows nothing of the web framework that sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    status: HTTPStatus
    media_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def json_page(value: object, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Page:
    """Make a page of JSON values."""
    body = json.dumps(value, indent=2, allow_nan=False) + "\n"
    return Page(status, "application/json", body.encode(), headers or {})


def refusal(status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None) -> Page:
    """Say in one sentence why there is no answer."""
    return json_page({"error": sentence}, status, headers)
