"""Built-in plugin ``push``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import HealthCheck, PluginSettings, hookimpl
from lmcache_plugins.push.check import PushedHealthCheck
from lmcache_plugins.push.settings import PushSettings


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.push]``."""
    yield PushSettings


@hookimpl
def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
    """Declare the check that takes reports; the configuration says how many there are."""
    yield PushedHealthCheck
