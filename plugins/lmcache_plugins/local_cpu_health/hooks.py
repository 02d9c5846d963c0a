"""Built-in plugin ``local_cpu_health``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, PluginSettings, hookimpl
from lmcache_plugins.local_cpu_health.check import LocalCPUHealthCheck
from lmcache_plugins.local_cpu_health.settings import LocalCPUHealthSettings


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.local_cpu_health]``."""
    yield LocalCPUHealthSettings


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check of CPU memory."""
    yield LocalCPUHealthCheck
