"""Built-in plugin ``fallback``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import FallbackPolicy, hookimpl
from lmcache_plugins.fallback.bypass import BypassPolicy, ReadOnlyPolicy, WriteOnlyPolicy
from lmcache_plugins.fallback.policy import LocalCPUPolicy, RecomputePolicy


@hookimpl
def lmcache_fallback_policies() -> Iterator[type[FallbackPolicy]]:
    """Declare all policies."""
    yield RecomputePolicy
    yield LocalCPUPolicy
    yield BypassPolicy
    yield ReadOnlyPolicy
    yield WriteOnlyPolicy
