"""Built-in plugin ``reuse``; registered by an entry point like any other."""

from __future__ import annotations

import os
from collections.abc import Iterator

import lmcache_core  # the tracker and its numpy come with their first use, not with every start
from lmcache_core import EventSubscriber, PluginSettings, TelemetryContext, hookimpl
from lmcache_plugins.reuse.settings import ReuseSettings
from lmcache_plugins.reuse.subscriber import ReuseSubscriber


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.reuse]``."""
    yield ReuseSettings


@hookimpl
def lmcache_event_subscribers(context: TelemetryContext) -> Iterator[EventSubscriber]:
    """Declare the tracker's subscriber where the table switches it on; else nobody pays for lookup events."""
    settings = context.settings(ReuseSettings.table)
    if not isinstance(settings, ReuseSettings) or not settings.enabled:
        return
    tracker = lmcache_core.ChunkReuseTracker(
        sample_rate=settings.sample_rate, idle_ttl_s=settings.idle_ttl_s, table_cap=settings.table_cap
    )
    reports = lmcache_core.ReuseReports.of(settings.report_folder, os.environ)
    yield ReuseSubscriber(
        tracker, reports, report_interval_s=settings.report_interval_s, chunk_tokens=context.chunk_tokens
    )
