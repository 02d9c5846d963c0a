"""Looks at tier 0: whether its memory adds up, and whether there is enough of it."""

from __future__ import annotations

from collections.abc import Callable

from lmcache_core import CacheView, CheckResult, HealthCheck, LocalUsage
from lmcache_plugins.local_cpu_health.settings import LocalCPUHealthSettings

_LEAST_BLOCKS = 10  # fewer asked for say nothing


class LocalCPUHealthCheck(HealthCheck):
    """The health of CPU memory.

    Fails when used and free memory do not make the whole: then a block may be handed out twice, and only a restart
    mends it. Has a reservation when a lease is never swept, and when too many blocks are refused.

    Args:
        usage: Tells how tier 0 fares.
        settings: What is still normal.
    """

    def __init__(self, usage: Callable[[], LocalUsage], settings: LocalCPUHealthSettings) -> None:
        self._usage = usage
        self._settings = settings
        first = usage()
        self._lent_blocks, self._refused_blocks = first.lent_blocks, first.refused_blocks

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make the one check."""
        settings = manager.settings(LocalCPUHealthSettings.table)
        known = settings if isinstance(settings, LocalCPUHealthSettings) else LocalCPUHealthSettings()
        return [cls(manager.local_usage, known)]

    def name(self) -> str:
        """There is one tier 0."""
        return "LocalCPUHealthCheck"

    def check(self) -> CheckResult:
        """Count."""
        usage = self._usage()
        details = {
            "capacity_bytes": usage.capacity_bytes,
            "used_bytes": usage.used_bytes,
            "free_bytes": usage.free_bytes,
            "chunks": usage.chunks,
            "leases": usage.leases,
            "refused_blocks": usage.refused_blocks,
        }
        lost_bytes = usage.capacity_bytes - usage.used_bytes - usage.free_bytes
        if lost_bytes:
            reason = (
                f"CPU memory does not add up: {usage.used_bytes} bytes used and {usage.free_bytes} free of "
                f"{usage.capacity_bytes}; restart the process and report it"
            )
            return CheckResult(healthy=False, reason=reason, details=details)
        reservations = [text for text in (self._overdue(usage), self._refused(usage)) if text]
        return CheckResult(healthy=True, degraded=bool(reservations), reason="; ".join(reservations), details=details)

    def _overdue(self, usage: LocalUsage) -> str:
        if usage.overdue_s <= self._settings.lease_grace_secs:
            return ""
        return (
            f"a lease is {usage.overdue_s:.0f} s older than pin_timeout_sec and holds memory; "
            "look at the thread lease-sweeper-thread"
        )

    def _refused(self, usage: LocalUsage) -> str:
        lent = usage.lent_blocks - self._lent_blocks
        refused = usage.refused_blocks - self._refused_blocks
        self._lent_blocks, self._refused_blocks = usage.lent_blocks, usage.refused_blocks
        asked = lent + refused
        if asked < _LEAST_BLOCKS or refused <= self._settings.most_refused_share * asked:
            return ""
        return f"{refused} of {asked} blocks were refused, as all memory is in use; raise max_local_cpu_size"
