"""What to do while a check fails: recompute everything, or go on without the failed backend."""

from __future__ import annotations

from typing import ClassVar

from lmcache_core import FallbackPolicy, HealthCheck, StorageControl


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
        self._left_out: dict[str, str] = {}

    def engage(self, check: HealthCheck, storage: StorageControl) -> None:
        """Leave the check's backend out and hold CPU memory on."""
        backend, owner = check.get_bypass_backend_name(), _owner_of(check)
        if backend is None:
            raise LookupError(f"check {check.name()!r} names no backend to leave out any more")
        self._left_out[owner] = backend
        storage.set_backend_bypass(backend, True, owner=owner, reason=f"check {check.name()} fails")  # noqa: FBT003 - LMCache's name and order
        storage.hold_hot_cache(owner=owner)

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Let go of both; the backend first, so that there is always a tier to serve from."""
        owner = _owner_of(check)
        backend = self._left_out.get(owner)
        if backend is not None:
            storage.set_backend_bypass(backend, False, owner=owner)  # noqa: FBT003 - LMCache's name and order
        storage.release_hot_cache(owner=owner)
        self._left_out.pop(owner, None)

    def objection(self, check: HealthCheck) -> str | None:
        """Refuse a check that names no backend: there would be nothing to leave out."""
        if check.get_bypass_backend_name() is not None:
            return None
        return (
            f"fallback policy 'local_cpu' has no backend to leave out for check {check.name()!r}; "
            "use 'recompute', or name one in get_bypass_backend_name"
        )


def _owner_of(check: HealthCheck) -> str:
    return f"check:{check.name()}"
