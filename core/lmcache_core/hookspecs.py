"""Every hook. Hooks declare, once per plugin, at start-up, on the main thread; they run nothing.

A plugin is a module named by an entry point of group ``lmcache_core.plugins``. It marks functions
with `hookimpl`, spelt exactly as here; a misspelt hook is an error of its plugin. A module may say
which hook API it needs: ``lmcache_api = ">=1,<2"``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from lmcache_core.contracts.command import CommandSpec, UsageSinkSpec
from lmcache_core.contracts.event import EventSubscriber
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.metric import MetricSpec, TelemetryContext
from lmcache_core.contracts.report import HealthReport
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.contracts.storage import StorageBackendSpec

PROJECT_NAME = "lmcache"
ENTRY_POINT_GROUP = "lmcache_core.plugins"
API_VERSION = "1.0"
"""Raised by 0.1 when a hook is added, by 1 when one changes or goes."""

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)


@hookspec
def lmcache_settings() -> Iterable[type[PluginSettings]]:
    """Declare the tables of the configuration that this plugin owns.

    Called before the configuration is validated. Two plugins with one table stop start-up; the
    error names both.

    Example:
        >>> @hookimpl
        ... def lmcache_settings() -> Iterator[type[PluginSettings]]:
        ...     yield DatabaseSettings
    """
    return ()


@hookspec
def lmcache_health_checks() -> Iterable[type[HealthCheck]]:
    """Declare health checks for the monitor to run.

    The core calls each class's ``create(manager)``, which may give none, one or many instances.
    Of two instances with one name, the second does not run, and a built-in one is never the second. One that cannot
    be asked for its name or a property does not run either. The cache starts without it and is degraded; it does
    not start where the plugin is required, or where the name stands in the plugin's own table.

    Example:
        >>> @hookimpl
        ... def lmcache_health_checks() -> Iterator[type[HealthCheck]]:
        ...     yield DatabaseHealthCheck
    """
    return ()


@hookspec
def lmcache_fallback_policies() -> Iterable[type[FallbackPolicy]]:
    """Declare fallback policies; the configuration chooses one by name.

    Two policies with one name stop start-up; the error names both plugins.
    """
    return ()


@hookspec
def lmcache_storage_backends() -> Iterable[StorageBackendSpec]:
    """Declare stores by URL scheme.

    Two stores with one scheme stop start-up; the error names both plugins. `build` is called when
    the configuration names an address with the scheme, not before: import client libraries there.
    While it is built nobody can use the store, so do not connect: `ping` does.
    """
    return ()


@hookspec
def lmcache_metric_specs(context: TelemetryContext) -> Iterable[MetricSpec]:  # noqa: ARG001 - pluggy passes it by name
    """Declare map-reduce usage metrics. Called when usage telemetry is switched on."""
    return ()


@hookspec
def lmcache_usage_messages() -> Iterable[type[UsageMessage]]:
    """Declare the message types that this plugin's specs fill."""
    return ()


@hookspec
def lmcache_event_subscribers(context: TelemetryContext) -> Iterable[EventSubscriber]:  # noqa: ARG001 - pluggy passes it by name
    """Declare stateful consumers of the event bus; each is registered when the cache starts."""
    return ()


@hookspec
def lmcache_usage_sinks() -> Iterable[UsageSinkSpec]:
    """Declare places that a fleet collector can write usage messages to.

    This version has no such collector: ``lmcachectl plugins show`` lists a sink, and nothing calls its `build` yet.
    """
    return ()


@hookspec
def lmcache_commands() -> Iterable[CommandSpec]:
    """Declare sub-commands of ``lmcachectl``. A built-in command's name cannot be taken."""
    return ()


@hookspec
def lmcache_health_changed(report: HealthReport) -> None:
    """Be told that the system's or a check's state changed.

    Called on a thread of this plugin's own, one change after the other. An exception is logged and
    counted for this plugin and harms no other. A call that takes longer than
    ``plugins.load_timeout_secs`` is logged and counted too; until it returns the plugin is told
    nothing, then the newest change.
    """
