"""Built-in plugin ``local_disk_health``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, PluginSettings, hookimpl
from lmcache_plugins.local_disk_health.check import LocalDiskHealthCheck
from lmcache_plugins.local_disk_health.settings import LocalDiskHealthSettings


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.local_disk_health]``."""
    yield LocalDiskHealthSettings


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check of file systems."""
    yield LocalDiskHealthCheck
