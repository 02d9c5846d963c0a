"""Why a call runs without the cache."""

from __future__ import annotations

from lmcache_core import LMCacheError


class NotCachedError(LMCacheError):
    """One call to `generate` cannot use the cache; the text is the reason, the same for all such calls.

    Never reaches the caller: the model's own `generate` runs instead.
    """
