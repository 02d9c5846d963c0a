"""Found by LMCache's scan for connector adapters, which takes modules whose names end like this one's."""

from __future__ import annotations

from lmcache_plugins.upstream.adapter import LMCoreConnectorAdapter

__all__ = ["LMCoreConnectorAdapter"]
