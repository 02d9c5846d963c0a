"""Built-in plugin ``usage``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import MetricSpec, TelemetryContext, UsageMessage, hookimpl
from lmcache_plugins.usage.specs import MESSAGES, default_metric_specs


@hookimpl
def lmcache_usage_messages() -> Iterator[type[UsageMessage]]:
    """Name the message types that the core sends and that the default metrics fill."""
    yield from MESSAGES


@hookimpl
def lmcache_metric_specs(context: TelemetryContext) -> Iterator[MetricSpec]:
    """Declare the default metrics."""
    yield from default_metric_specs(context)
