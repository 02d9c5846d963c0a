"""The last ping and the last failure of one backend, kept for those who ask why."""

from __future__ import annotations

import time
from collections.abc import Callable

from lmcache_core.contracts.report import FailureReport, PingReport


class Evidence:
    """Remembers one ping and one failure. Any thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ping: tuple[int, float, float] | None = None
        self._failure: tuple[str, str, float] | None = None

    def pinged(self, code: int, latency_ms: float) -> None:
        """Note how a ping ended."""
        self._ping = (code, latency_ms, self._clock())

    def failed(self, call: str, reason: str) -> None:
        """Note a failure of live traffic."""
        self._failure = (call, reason, self._clock())

    @property
    def last_ping(self) -> PingReport | None:
        """None before the first."""
        found = self._ping
        if found is None:
            return None
        code, latency_ms, at_s = found
        return PingReport(code=code, latency_ms=latency_ms, age_s=max(0.0, self._clock() - at_s))

    @property
    def last_failure(self) -> FailureReport | None:
        """None before the first."""
        found = self._failure
        if found is None:
            return None
        call, reason, at_s = found
        return FailureReport(call=call, reason=reason, age_s=max(0.0, self._clock() - at_s))
