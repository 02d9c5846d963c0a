"""Found by the scan of LMCache's health monitor, which takes every check class that it sees here."""

from __future__ import annotations

from lmcache_plugins.upstream.check import PluginHealthCheck

__all__ = ["PluginHealthCheck"]
