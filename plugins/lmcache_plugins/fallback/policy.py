"""What to do while a check fails: recompute everything, or go on without the failed backend."""

from __future__ import annotations

from typing import ClassVar

from lmcache_core import FallbackPolicy, HealthCheck, StorageControl
from lmcache_plugins.fallback.left_out import LeftOut, owner_of


class RecomputePolicy(FallbackPolicy):
    """The engine recomputes everything; no call touches the cache."""

    name: ClassVar[str] = "recompute"
    keeps_serving: ClassVar[bool] = False

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Do nothing: the monitor closes the gate."""

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Do nothing: the monitor opens the gate."""


class LocalCPUPolicy(FallbackPolicy):
    """The failed backend is left out, and CPU memory keeps chunks even where it does not otherwise.

    Each check holds both as an owner of its own, so that no other check's and no operator's hold is
    ever undone, and CPU memory is cleared once the last hold on it ends.
    """

    name: ClassVar[str] = "local_cpu"
    keeps_serving: ClassVar[bool] = True

    def __init__(self) -> None:
        self._left_out = LeftOut(self.name)

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Leave the check's backend out and hold CPU memory on."""
        self._left_out.hold(check, storage)
        storage.hold_hot_cache(owner=owner_of(check))

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Let go of both; the backend first, so that there is always a tier to serve from."""
        self._left_out.release(check, storage)
        storage.release_hot_cache(owner=owner_of(check))

    def objection(self, check: HealthCheck) -> str | None:
        """Refuse a check that names no backend: there would be nothing to leave out."""
        return self._left_out.objection(check)
