"""Looks at the file system under a store: space, inodes, and whether it can be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lmcache_core import CacheView, CheckResult, HealthCheck, Tier
from lmcache_plugins.local_disk_health.settings import LocalDiskHealthSettings

_SCHEMES = frozenset({"disk", "file"})
_GIB = 1 << 30
_WRITES = frozenset({"writes"})


class LocalDiskHealthCheck(HealthCheck):
    """The health of the file system that a ``disk://`` or ``file://`` store lives on.

    Fails when it gives an input or output error or can only be read. Has a reservation when space or inodes run
    out. That the store itself keeps what it is handed is its `RemoteBackendHealthCheck`'s to say.

    Args:
        tier: The store.
        settings: What is still normal.
    """

    def __init__(self, tier: Tier, settings: LocalDiskHealthSettings) -> None:
        self._tier = tier
        self._settings = settings
        self._folder = Path(tier.url.partition("://")[2])

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make one check for each store made of files."""
        settings = manager.settings(LocalDiskHealthSettings.table)
        known = settings if isinstance(settings, LocalDiskHealthSettings) else LocalDiskHealthSettings()
        return [cls(tier, known) for tier in manager.tiers if tier.url.partition("://")[0] in _SCHEMES]

    def name(self) -> str:
        """Give the tier's name in brackets."""
        return f"LocalDiskHealthCheck({self._tier.name})"

    @property
    def fallback_policy(self) -> str | Sequence[str]:
        """The store's own, or the configured one."""
        return self._tier.options.fallback_policy

    @property
    def policy_ladder_secs(self) -> float:
        """The store's own, or the configured one."""
        return self._tier.options.policy_ladder_secs

    def get_bypass_backend_name(self) -> str:
        """Name the store."""
        return self._tier.name

    def check(self) -> CheckResult:
        """Ask the file system; a network file system may hang, which the timeout ends."""
        folder = self._nearest_folder()
        try:
            found = os.statvfs(folder)
        except OSError as error:
            reason = (
                f"{self._tier.name}: cannot ask the file system of {folder}: {(error.strerror or str(error)).lower()}"
            )
            return CheckResult(healthy=False, reason=reason)
        free_bytes = found.f_bavail * found.f_frsize
        details: dict[str, str | int | float | bool | None] = {
            "folder": str(folder),
            "free_bytes": free_bytes,
            "total_bytes": found.f_blocks * found.f_frsize,
            "free_inodes": found.f_favail,
        }
        if found.f_flag & os.ST_RDONLY or not os.access(folder, os.W_OK | os.X_OK):
            reason = f"{self._tier.name}: {folder} cannot be written; remount it, or mend its owner and mode"
            return CheckResult(healthy=False, reason=reason, details=details, failing=_WRITES)
        reservations = list(self._shortages(free_bytes, found))
        reason = "; ".join(reservations) or self._notice(free_bytes)
        return CheckResult(healthy=True, degraded=bool(reservations), reason=reason, details=details)

    def _nearest_folder(self) -> Path:
        """The store's folder, or what it will be made in."""
        return next((path for path in (self._folder, *self._folder.parents) if path.is_dir()), Path("/"))

    def _shortages(self, free_bytes: int, found: os.statvfs_result) -> Sequence[str]:
        shortages = []
        if free_bytes < self._settings.least_free_gib * _GIB:
            shortages.append(
                f"{free_bytes / _GIB:.2f} GiB are free at {self._folder}, less than least_free_gib "
                f"({self._settings.least_free_gib:g})"
            )
        if found.f_files and found.f_favail < self._settings.least_free_inodes:  # some file systems count none
            shortages.append(
                f"{found.f_favail} inodes are free at {self._folder}, less than least_free_inodes "
                f"({self._settings.least_free_inodes})"
            )
        return shortages

    def _notice(self, free_bytes: int) -> str:
        usage = self._tier.usage()
        if usage.capacity_bytes <= 0 or usage.bytes_used < 0:
            return ""
        still_bytes = usage.capacity_bytes - usage.bytes_used
        if still_bytes <= free_bytes:
            return ""
        return (
            f"the store may take {still_bytes / _GIB:.2f} GiB more, and {free_bytes / _GIB:.2f} GiB are free at "
            f"{self._folder}; lower max_local_disk_size"
        )
