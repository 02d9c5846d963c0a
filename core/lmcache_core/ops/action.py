"""A request that changes something: what is asked, and who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lmcache_core.ops.page import Page

_MOST_BODY_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a client asks.

    Attributes:
        path: Values of the path's ``{names}``.
        query: Of the address; the last of equal names.
        headers: Names in lower case.
        body: At most the action's `most_body_bytes`.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One request that the server takes beside the pages.

    Attributes:
        method: Of HTTP, upper case.
        path: Such as ``/health/checks/{name}/report``.
        answer: Runs on a worker thread; checks the right to ask by itself (`AccessToken`).
        most_body_bytes: A longer body is refused with 413, unread.
    """

    method: str
    path: str
    answer: Callable[[Call], Page]
    most_body_bytes: int = _MOST_BODY_BYTES
