"""A request that the server does not serve."""

from __future__ import annotations

from lmcache_core.errors import LMCacheError


class RefusedCallError(LMCacheError):
    """Ends a call with `Refused`.

    Args:
        code: One of the words of `RefusalCode`.
        sentence: For the client's log.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
