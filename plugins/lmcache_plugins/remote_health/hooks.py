"""Built-in plugin ``remote_health``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, hookimpl
from lmcache_plugins.remote_health.check import RemoteBackendHealthCheck


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check of remote and disk stores."""
    yield RemoteBackendHealthCheck
