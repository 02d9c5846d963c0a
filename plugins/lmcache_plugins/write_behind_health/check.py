"""Looks at the queue in front of a store: whether it is written, and fast enough."""

from __future__ import annotations

from collections.abc import Callable

from lmcache_core import CacheView, CheckResult, HealthCheck, WriteBehindUsage
from lmcache_plugins.write_behind_health.settings import WriteBehindHealthSettings

_WRITES = frozenset({"writes"})


class WriteBehindHealthCheck(HealthCheck):
    """The health of one store's write-behind queue.

    Fails when a thread that writes is dead. Has a reservation while the queue is almost full, and after chunks
    were shed because it was. Its policy is `read_only`: what is in the store can still be read.

    Args:
        usage: Tells how the queue fares.
        settings: What is still normal.
    """

    def __init__(self, usage: Callable[[], WriteBehindUsage], settings: WriteBehindHealthSettings) -> None:
        self._usage = usage
        self._settings = settings
        first = usage()
        self._backend = first.backend
        self._shed_chunks = first.shed_chunks

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make one check for each store behind tier 0."""
        settings = manager.settings(WriteBehindHealthSettings.table)
        known = settings if isinstance(settings, WriteBehindHealthSettings) else WriteBehindHealthSettings()

        def of(place: int) -> Callable[[], WriteBehindUsage]:
            return lambda: manager.write_behind()[place]

        return [cls(of(place), known) for place in range(len(manager.write_behind()))]

    def name(self) -> str:
        """Give the tier's name in brackets."""
        return f"WriteBehindHealthCheck({self._backend})"

    @property
    def fallback_policy(self) -> str:
        """Only writes suffer."""
        return "read_only"

    def get_bypass_backend_name(self) -> str:
        """Name the store."""
        return self._backend

    def check(self) -> CheckResult:
        """Count."""
        usage = self._usage()
        shed = usage.shed_chunks - self._shed_chunks
        self._shed_chunks = usage.shed_chunks
        details = {
            "waiting_chunks": usage.waiting_chunks,
            "limit_chunks": usage.limit_chunks,
            "shed_chunks": usage.shed_chunks,
        }
        if usage.dead_threads:
            reason = f"thread {', '.join(map(repr, usage.dead_threads))} died; restart the process"
            return CheckResult(healthy=False, reason=reason, details=details, failing=_WRITES)
        full = usage.waiting_chunks >= self._settings.full_share * usage.limit_chunks
        if not full and not shed:
            return CheckResult(healthy=True, details=details)
        reason = (
            f"{usage.waiting_chunks} of at most {usage.limit_chunks} chunks wait to be written to {usage.backend}, "
            f"{shed} were shed since the last look; the store is slower than what is stored"
        )
        return CheckResult(healthy=True, degraded=True, reason=reason, details=details)
