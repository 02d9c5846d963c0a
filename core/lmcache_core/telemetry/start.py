"""Joins the parts of usage telemetry, or none of them."""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry

from lmcache_core.config.usage import UsageOptions
from lmcache_core.contracts.event import EventSubscriber
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.metric import MetricSpec, TelemetryContext
from lmcache_core.contracts.url import StoreURL
from lmcache_core.errors import PluginError
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.usage import UsageCollector
from lmcache_core.registry.collect import PluginRegistry
from lmcache_core.telemetry.choose import choose_specs
from lmcache_core.telemetry.consent import why_off
from lmcache_core.telemetry.flush import FINAL_FLUSH_S, UsageFlushThread
from lmcache_core.telemetry.guard import TelemetryLosses, swallow_telemetry_errors
from lmcache_core.telemetry.identity import config_folder, machine_id, new_session_id, state_folder
from lmcache_core.telemetry.lastfile import write_last
from lmcache_core.telemetry.messages import MetadataMessage
from lmcache_core.telemetry.outbox import Outbox, Sender
from lmcache_core.telemetry.payload import UsageIdentity
from lmcache_core.telemetry.probes import UsageProbe
from lmcache_core.telemetry.reporter import MPContinuousUsageReporter
from lmcache_core.threads import PeriodicThreadRegistry

log = logging.getLogger(__name__)

SUBSCRIBER_NAME = "usage"
_SENDER_MODULE = "lmcache_core.telemetry.transport"  # imported only where something is sent


class Telemetry:
    """Usage telemetry of one cache instance.

    Switched off, or without a collector, it makes no thread and no file, imports no client, and asks
    no plugin. Nothing here waits for the network, and nothing raises.

    Args:
        options: As configured.
        registry: The plugins, for their specs and messages.
        bus: Where events come from.
        threads: Of the cache instance.
        context: What specs may need to know.
        metrics: Shows what was sent and lost.
        probes: What is read when an interval ends.
        sources: Subscribers that give messages of their own.
        first_messages: Make what is sent once, on telemetry's thread.
        on_hook_error: Told why a plugin's hook gave no specs.
        environ: Instead of the process's own: where the user's folders are.
    """

    def __init__(
        self,
        options: UsageOptions,
        *,
        registry: PluginRegistry,
        bus: EventBus,
        threads: PeriodicThreadRegistry,
        context: TelemetryContext,
        metrics: CollectorRegistry,
        probes: Sequence[UsageProbe] = (),
        sources: Sequence[EventSubscriber] = (),
        first_messages: Sequence[Callable[[], UsageMessage]] = (),
        on_hook_error: Callable[[PluginError], None] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._options = options
        self._registry = registry
        self._bus = bus
        self._threads = threads
        self._context = context
        self._metrics = metrics
        self._probes = tuple(probes)
        self._sources = tuple(sources)
        self._first_messages = tuple(first_messages)
        self._on_hook_error = on_hook_error
        self._environ = os.environ if environ is None else environ
        self._losses = TelemetryLosses()
        self._outbox: Outbox | None = None
        self._thread: UsageFlushThread | None = None
        self._off = why_off(options)

    @property
    def is_on(self) -> bool:
        """Whether something is sent."""
        return self._thread is not None

    def start(self) -> None:
        """Begin, if it is allowed and there is a collector. Register it before other subscribers: it ends last."""
        if self._off or self._options.endpoint is None:
            log.debug("usage telemetry is off: %s", self._off)
            return
        try:
            with swallow_telemetry_errors(self._losses, "start"):
                self._start(self._options.endpoint)
        finally:
            if self._thread is None:
                self._off = "it could not be started; see the log"

    def stop(self, timeout_s: float = FINAL_FLUSH_S) -> None:
        """Flush and end, within so long. `EventBus.stop` does it too; once is enough."""
        if self._thread is not None and self._thread.is_running:
            self._thread.stop(timeout_s)

    def status(self) -> dict[str, Any]:
        """Tell on or off, why, to where, and how the last message fared, as JSON values."""
        last = self._outbox.last if self._outbox is not None else None
        return {
            "on": self.is_on,
            "reason": self._off,
            "endpoint": str(self._options.endpoint) if self.is_on else "",
            "last": None
            if last is None
            else {"at_s": last.at_s, "message_type": last.message_type, "reason": last.reason},
        }

    def _start(self, endpoint: StoreURL) -> None:
        began_s, began = time.monotonic(), time.time()
        outbox = Outbox(
            _LateSender(endpoint),
            self._identity,
            self._losses,
            on_result=lambda result: write_last(state_folder(self._environ), result, str(endpoint)),
        )
        reporter = MPContinuousUsageReporter(
            self._specs(),
            outbox=outbox,
            losses=self._losses,
            probes=self._probes,
            sources=self._sources,
            first_messages=[
                *self._first_messages,
                lambda: MetadataMessage(start_time=began, duration=time.monotonic() - began_s),
            ],
        )
        thread = UsageFlushThread(reporter, interval_s=self._options.interval_s, registry=self._threads)
        reporter.attach(wake=thread.wake, stop=self.stop)
        self._bus.register_subscriber(SUBSCRIBER_NAME, reporter)
        self._metrics.register(UsageCollector(outbox, self._losses))
        thread.start()
        self._outbox, self._thread = outbox, thread
        log.info(
            "usage telemetry is on: every %.0f s to %s, as %s asks; see: lmcachectl usage preview",
            self._options.interval_s,
            endpoint,
            self._options.endpoint_source,
        )

    def _specs(self) -> list[MetricSpec]:
        return choose_specs(
            self._registry.metric_specs(self._context, on_hook_error=self._on_hook_error),
            self._registry.usage_messages(),
            self._probes,
        )

    def _identity(self) -> UsageIdentity:
        return UsageIdentity(
            session_id=new_session_id(),
            machine_id=machine_id(config_folder(self._environ)),
            deployment_mode=self._context.deployment_mode,
        )


class _LateSender:
    """Imports the client when the first message is sent, on telemetry's thread.

    Args:
        endpoint: The collector.
    """

    def __init__(self, endpoint: StoreURL) -> None:
        self._endpoint = endpoint
        self._sender: Sender | None = None

    def send(self, path: str, body: bytes, *, timeout_s: float | None = None) -> str:
        """Post one message; see `Sender`."""
        if self._sender is None:
            module = importlib.import_module(_SENDER_MODULE)
            self._sender = cast("Sender", module.UsageMessageSender(self._endpoint))
        return self._sender.send(path, body, timeout_s=timeout_s)
