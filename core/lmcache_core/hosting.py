"""Stores and checks of this project inside another cache, which has its own engine, tiers and monitor."""

from __future__ import annotations

from lmcache_core.contracts.control import CacheView
from lmcache_core.errors import PluginError
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.health.hosted import HostedCheck, host_checks
from lmcache_core.loading import Loaded
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.tiers import build_tiers


def open_tiers(loaded: Loaded) -> list[GuardedTier]:
    """Build the stores that a configuration names, each behind its guard; connects to none.

    Their metrics are in a registry of their own, which nobody scrapes: the host counts. Close each.

    Raises:
        ConfigError: An address that its store refuses.
        PluginUnavailableError: What a store needs is not installed; says how to install it.
        PluginError: A store's `build` raised, or did not return in time.
    """
    metrics = CacheMetrics()
    return build_tiers(
        loaded,
        metrics=metrics,
        journal=Journal(EventBus(metrics)),
        on_failure=lambda: None,
        on_unbuilt=_refuse,
    )


def open_checks(loaded: Loaded, view: CacheView) -> tuple[list[HostedCheck], dict[str, str]]:
    """Make the health checks of all loaded plugins for a host.

    Args:
        loaded: Plugins and configuration.
        view: What the host can show of itself; its `health_options` are the defaults of every check.

    Returns:
        The checks, sorted by name; and by class or check name, why one was left out.

    Raises:
        ConfigError: The configuration has checks depend on each other in a circle.
    """
    tables = loaded.configuration.values.extra_config.checks
    return host_checks(
        loaded.registry.health_checks(),
        view,
        options=view.health_options,
        tables=tables,
        limit_s=loaded.registry.limit_s,
    )


def _refuse(error: PluginError) -> None:
    raise error
