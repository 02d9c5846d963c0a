"""Builds the usage telemetry of a cache, from what it may read of the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry

from lmcache_core.contracts.event import EventSubscriber
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.metric import TelemetryContext
from lmcache_core.errors import PluginError
from lmcache_core.events.bus import EventBus
from lmcache_core.loading import Loaded
from lmcache_core.storage.manager import StorageManager
from lmcache_core.telemetry.machine import describe_machine
from lmcache_core.telemetry.probes import StoreUsage, memory_probe, stores_probe
from lmcache_core.telemetry.start import Telemetry
from lmcache_core.threads import PeriodicThreadRegistry


def build_telemetry(
    loaded: Loaded,
    *,
    storage: StorageManager,
    describe: Callable[[], UsageMessage],
    bus: EventBus,
    threads: PeriodicThreadRegistry,
    context: TelemetryContext,
    metrics: CollectorRegistry,
    sources: Sequence[EventSubscriber],
    on_hook_error: Callable[[PluginError], None],
) -> Telemetry:
    """Join the cache's state with what plugins declare; makes no thread and no file.

    Args:
        loaded: Plugins and configuration.
        storage: Read when an interval ends.
        describe: Makes the message that says how the cache is set up.
        bus: Where events come from.
        threads: Of the cache instance.
        context: What specs may need to know.
        metrics: Shows what was sent and lost.
        sources: Subscribers that may give messages of their own.
        on_hook_error: Told why a plugin's hook gave no specs.
    """

    def stores() -> Iterator[StoreUsage]:
        for tier in storage.tiers:
            usage = tier.usage()
            yield StoreUsage(l2_name=tier.kind, bytes_used=usage.bytes_used, capacity_bytes=usage.capacity_bytes)

    arena, configuration = storage.local.arena, loaded.configuration
    return Telemetry(
        configuration.usage,
        registry=loaded.registry,
        bus=bus,
        threads=threads,
        context=context,
        metrics=metrics,
        probes=[memory_probe(lambda: (arena.used_bytes, arena.capacity_bytes)), stores_probe(stores)],
        sources=sources,
        first_messages=[
            lambda: describe_machine(os.environ),
            describe,
        ],
        on_hook_error=on_hook_error,
    )
