"""The thread that ends overrides when their time is over."""

from __future__ import annotations

from lmcache_core.health.overrides import Overrides
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary

_NAME = "override-expiry-thread"
_LONGEST_WAIT_S = 5.0  # the wall clock may be set, so it is looked at even while nothing is due


class OverrideExpiry(PeriodicThread):
    """Looks at least once in five seconds, and when the next override ends."""

    def __init__(self, overrides: Overrides, registry: PeriodicThreadRegistry) -> None:
        super().__init__(_NAME, _LONGEST_WAIT_S, ThreadLevel.MEDIUM, registry=registry)
        self._overrides = overrides
        self._next_s = 0.0

    def _execute(self) -> ThreadRunSummary:
        self._next_s = self._overrides.expire()
        return ThreadRunSummary(success=True, message=f"{len(self._overrides.active())} in force")

    def _next_wait_s(self) -> float:
        return min(_LONGEST_WAIT_S, self._next_s)
