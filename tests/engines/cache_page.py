"""The cache's own ``/health`` page."""

from __future__ import annotations

import time
from typing import Any

import httpx

_TURN_S = 60.0


def read_page(address: str) -> tuple[int, dict[str, Any]]:
    """Give status and verdict."""
    answer = httpx.get(f"{address}/health", timeout=10.0)
    return answer.status_code, answer.json()


def wait_for_status(address: str, status: int) -> dict[str, Any]:
    """Wait until the page has this status; give the verdict."""
    end = time.monotonic() + _TURN_S
    while True:
        found, verdict = read_page(address)
        if found == status:
            return verdict
        assert time.monotonic() < end, verdict
        time.sleep(0.1)
