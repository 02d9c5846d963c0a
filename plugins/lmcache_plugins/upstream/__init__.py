"""lmcache-core beside LMCache: its health monitor runs our checks, its remotes may be our stores.

Importing this imports nothing of LMCache.
"""

from __future__ import annotations

from lmcache_plugins.upstream.bridge import install, uninstall

__all__ = ["install", "uninstall"]
