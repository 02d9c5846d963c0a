"""Rates from a server's counters: what two of its statuses differ by, over the time between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KEPT = 120


@dataclass(frozen=True, slots=True)
class Rates:
    """What a server did between two statuses, a second; None where it cannot be said.

    Attributes:
        calls: Control messages.
        refused: Of those that were refused.
        requested_tokens: Asked for in lookups.
        retrieved_tokens: Delivered.
        stored_tokens: Newly kept.
        retrieved_bytes: Delivered.
        stored_bytes: Newly kept.
        hit_share: Of the tokens asked for, those found, 0 to 1; None where none were asked for.
    """

    calls: float | None = None
    refused: float | None = None
    requested_tokens: float | None = None
    retrieved_tokens: float | None = None
    stored_tokens: float | None = None
    retrieved_bytes: float | None = None
    stored_bytes: float | None = None
    hit_share: float | None = None


class RateMeter:
    """Takes statuses one after another and gives rates.

    Attributes:
        now: Between the last two statuses of one run of the server.
        history: The last ones, oldest first.
    """

    def __init__(self) -> None:
        self.now = Rates()
        self.history: deque[Rates] = deque(maxlen=_KEPT)
        self._last: Mapping[str, Any] = {}

    def take(self, document: Mapping[str, Any]) -> Rates:
        """Take the next status. A server that was started again in between begins anew."""
        last, self._last = self._last, document
        if last and last.get("boot_id") == document.get("boot_id"):
            self.now = rates_between(last, document)
            self.history.append(self.now)
        else:
            self.now = Rates()
            self.history.clear()
        return self.now


def rates_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Rates:
    """Give the rates between two statuses of one run of a server."""
    seconds = _difference(before, after, "uptime_s")
    if not seconds:
        return Rates()
    earlier, later = _counters(before), _counters(after)

    def per_second(name: str) -> float | None:
        change = _difference(earlier, later, name)
        return None if change is None else change / seconds

    requested = _difference(earlier, later, "requested_tokens")
    hit = _difference(earlier, later, "hit_tokens")
    return Rates(
        calls=per_second("calls"),
        refused=per_second("refused_calls"),
        requested_tokens=per_second("requested_tokens"),
        retrieved_tokens=per_second("retrieved_tokens"),
        stored_tokens=per_second("stored_tokens"),
        retrieved_bytes=per_second("retrieved_bytes"),
        stored_bytes=per_second("stored_bytes"),
        hit_share=hit / requested if requested and hit is not None else None,
    )


def _counters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    counters = document.get("counters")
    return counters if isinstance(counters, Mapping) else {}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float | None:
    """None where one is lacking, or where a counter went back, as it never does."""
    first, second = before.get(name), after.get(name)
    for value in (first, second):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
    change = float(second) - float(first)  # type: ignore[arg-type] # judged above
    return change if change >= 0 else None
