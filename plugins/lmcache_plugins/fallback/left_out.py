"""Which backend each check has left out, so that exactly that one is let back."""

from __future__ import annotations

from lmcache_core import HealthCheck, StorageControl


class LeftOut:
    """The holds of one policy. Each check holds as an owner of its own: no other's hold is ever undone.

    Args:
        policy: Its name, for sentences.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._backends: dict[str, str] = {}

    def hold(self, check: HealthCheck, storage: StorageControl, *, reads: bool = True, writes: bool = True) -> None:
        """Leave the check's backend out.

        Raises:
            LookupError: The check names none any more.
        """
        backend, owner = check.get_bypass_backend_name(), owner_of(check)
        if backend is None:
            raise LookupError(f"check {check.name()!r} names no backend to leave out any more")
        self._backends[owner] = backend
        reason = f"check {check.name()} fails, policy {self._policy}"
        storage.set_backend_bypass(backend, True, owner=owner, reason=reason, reads=reads, writes=writes)  # noqa: FBT003 - LMCache's name and order

    def release(self, check: HealthCheck, storage: StorageControl) -> None:
        """Let the backend back that was left out for this check, whatever the check names now."""
        owner = owner_of(check)
        backend = self._backends.get(owner)
        if backend is not None:
            storage.set_backend_bypass(backend, False, owner=owner)  # noqa: FBT003 - LMCache's name and order
            self._backends.pop(owner, None)

    def objection(self, check: HealthCheck) -> str | None:
        """Say that a check names no backend; None if it does."""
        if check.get_bypass_backend_name() is not None:
            return None
        return (
            f"fallback policy {self._policy!r} has no backend to leave out for check {check.name()!r}; "
            "use 'recompute', or name one in get_bypass_backend_name"
        )


def owner_of(check: HealthCheck) -> str:
    """Name the owner under which a check holds."""
    return f"check:{check.name()}"
