"""Plugin ``database``: declares its table and its check, and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, PluginSettings, hookimpl

from lmcache_check_database.check import DatabaseHealthCheck
from lmcache_check_database.settings import DatabaseSettings

lmcache_api = ">=1,<2"


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.database]``."""
    yield DatabaseSettings


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check; the core makes an instance when the cache starts."""
    yield DatabaseHealthCheck
