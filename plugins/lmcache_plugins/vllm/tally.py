"""Counts of one side of the connector, from one report to the next."""

from __future__ import annotations

import threading
from collections.abc import Mapping

LABELS = {"refused_requests": "reason", "hook_errors": "hook"}
"""Families whose counts carry a label; it stands behind the family's name and a colon."""

FAMILIES = {
    "requested_tokens": "Tokens of requests that were looked up.",
    "hit_tokens": "Tokens that vLLM took from the cache instead of computing them.",
    "loaded_tokens": "Tokens whose KV was loaded.",
    "failed_tokens": "Tokens whose KV was promised and could not be loaded; vLLM computed them.",
    "stored_tokens": "Tokens whose KV was newly kept.",
    "unkept_tokens": "Tokens that were not kept: windowed layers had let go of them, or their request ended too soon.",
    "load_seconds": "Seconds spent loading.",
    "store_seconds": "Seconds that steps were held up by storing.",
    "refused_requests": "Requests whose KV tokens alone cannot name, left to vLLM.",
    "hook_errors": "Calls of vLLM that failed inside the connector and were answered with a no-op.",
}
"""Names and what they count, for Prometheus; tokens are counted by each rank."""


def merge(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Add the counts of two reports."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *second)}


class Tally:
    """Counts since the last `take`. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}

    def add(self, family: str, amount: float = 1, *, label: str = "") -> None:
        """Count."""
        name = f"{family}:{label}" if label else family
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def take(self) -> dict[str, float]:
        """Give what was counted since the last call, by family or ``family:label``; empty for nothing."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts
