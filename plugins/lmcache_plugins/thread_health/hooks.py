"""Built-in plugin ``thread_health``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, PluginSettings, hookimpl
from lmcache_plugins.thread_health.check import ThreadHealthCheck
from lmcache_plugins.thread_health.settings import ThreadHealthSettings


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.thread_health]``."""
    yield ThreadHealthSettings


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check of threads."""
    yield ThreadHealthCheck
