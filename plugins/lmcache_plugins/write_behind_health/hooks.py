"""Built-in plugin ``write_behind_health``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, PluginSettings, hookimpl
from lmcache_plugins.write_behind_health.check import WriteBehindHealthCheck
from lmcache_plugins.write_behind_health.settings import WriteBehindHealthSettings


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.write_behind_health]``."""
    yield WriteBehindHealthSettings


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check of the queues."""
    yield WriteBehindHealthCheck
