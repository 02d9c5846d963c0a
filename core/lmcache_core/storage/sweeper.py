"""The thread that ends leases nobody came for."""

from __future__ import annotations

from lmcache_core.storage.manager import StorageManager
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary

_LONGEST_INTERVAL_S = 30.0
"""LMCache's default for its pin check."""

_LOOKS_PER_LEASE = 4
"""A lease outlives its time by at most a quarter."""


class LeaseSweeper(PeriodicThread):
    """Releases expired promises of lookups, so that a caller that died pins no memory for ever.

    Args:
        storage: Whose leases.
        lease_ttl_s: How long a lease lives, ``pin_timeout_sec``.
        registry: Of periodic threads.
    """

    def __init__(self, storage: StorageManager, lease_ttl_s: float, registry: PeriodicThreadRegistry) -> None:
        interval_s = min(_LONGEST_INTERVAL_S, lease_ttl_s / _LOOKS_PER_LEASE)
        super().__init__("lease-sweeper-thread", interval_s, ThreadLevel.HIGH, registry=registry)
        self._storage = storage

    def _execute(self) -> ThreadRunSummary:
        expired = self._storage.sweep()
        return ThreadRunSummary(success=True, message=f"{expired} leases expired", extra_info={"expired": expired})
