"""What stands where a store should be that could not be built."""

from __future__ import annotations

from typing import NoReturn

from lmcache_core.contracts.storage import StorageBackend
from lmcache_core.errors import BackendError


class UnbuiltStore(StorageBackend):
    """Answers every call with the reason why there is no store, so that it is treated as one that is down.

    Args:
        reason: One sentence that says who could not build it, and why.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _refuse(self, *_what: object, **_how: object) -> NoReturn:
        raise BackendError(self._reason)

    contains = load_into = store = delete = ping = _refuse

    def close(self) -> None:
        """There is nothing to let go of."""
