"""What a cache of this project has and LMCache has not."""

from __future__ import annotations

from lmcache_core import LMCacheError


class AbsentHereError(LMCacheError):
    """A health check asked for something that LMCache does not have; it is left out.

    Args:
        what: Its name in `CacheView`.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"needs {what}, which lmcache does not have")
