"""The Prometheus families of one cache instance, on a registry of its own.

Names, units and meanings are LMCache's where it has them. A counter's exposition ends in ``_total``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from lmcache_core.contracts.control import TenantUsage
from lmcache_core.metrics.bus import BusView, EventBusCollector
from lmcache_core.metrics.tenants import TenantCollector

INSTANCE_LABELS = ("instance_id", "model_name", "worker_id", "role", "version")


class CacheMetrics:
    """All families. Safe from any thread.

    Attributes:
        registry: What ``/metrics`` shows; never the process-wide default one, so that two
            instances in one process do not clash.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.instance_info = self._gauge(
            "instance_info", "1, with what tells this instance from others in its labels", INSTANCE_LABELS
        )
        self._add_health()
        self._add_plugins()
        self._add_requests()
        self._add_storage()

    def _add_health(self) -> None:
        backend = ("backend",)
        self.is_healthy = self._gauge("is_healthy", "1 while the cache serves, 0 while everything is recomputed")
        self.remote_ping_latency = self._gauge(
            "remote_ping_latency", "Milliseconds the last ping took; kept until the next one", backend
        )
        self.remote_ping_error_code = self._gauge(
            "remote_ping_error_code",
            "Last ping: 0 success, -1 timeout, -2 other error; kept until the next one",
            backend,
        )
        self.remote_ping_errors = self._counter("remote_ping_errors", "Failed pings", backend)
        self.remote_ping_successes = self._counter("remote_ping_successes", "Successful pings", backend)
        self.get_blocking_failed = self._counter(
            "get_blocking_failed_count", "Loads that raised or timed out; misses do not count", backend
        )
        self.put_failed = self._counter("put_failed_count", "Stores that raised or timed out", backend)
        self.backend_bypassed = self._gauge("backend_bypassed", "1 while a backend is left out", backend)
        self.breaker_state = self._gauge(
            "breaker_state", "Circuit breaker: 0 closed, 1 ramp, 2 half-open, 3 open", backend
        )
        self.breaker_opened = self._counter("breaker_opened", "Times the circuit breaker opened", backend)
        self.check_healthy = self._gauge("check_healthy", "1 while a health check passes", ("check",))
        self.check_failures = self._counter("check_failures", "Runs of a health check that failed", ("check",))
        self.check_errors = self._counter("check_errors", "Runs of a health check that raised", ("check",))
        self.health_transitions = self._counter(
            "health_transitions",
            "Changes of the system, a check, a backend, a breaker or an override",
            ("kind", "name", "state"),
        )
        self.overrides = self._gauge("overrides", "Operators' overrides in force", backend)
        self.health_file_errors = self._counter(
            "health_file_errors", "Reads and lines that a state, audit or history file did not take"
        )

    def _add_plugins(self) -> None:
        self.plugin_load_failed = self._gauge(
            "plugin_load_failed", "1 for a plugin that did not load, or could not make something", ("plugin",)
        )
        self.hook_errors = self._counter(
            "hook_errors",
            "Times a plugin raised or hung when it was told or asked something, or missed a change meanwhile",
            ("plugin",),
        )

    def _add_requests(self) -> None:
        self.requested_tokens = self._counter("num_requested_tokens", "Tokens asked for in lookups")
        self.hit_tokens = self._counter("num_hit_tokens", "Tokens found in lookups")
        self.retrieved_tokens = self._counter("num_retrieved_tokens", "Tokens delivered by retrieves")
        self.short_tokens = self._counter(
            "num_short_tokens", "Tokens that a lookup had found and a retrieve did not deliver"
        )
        self.stored_tokens = self._counter("num_stored_tokens", "Tokens newly stored")
        self.stored_bytes = self._counter("stored_bytes", "Bytes of KV newly stored, of every rank")
        self.retrieved_bytes = self._counter("retrieved_bytes", "Bytes of KV delivered by retrieves, to every rank")
        self.degraded_requests = self._counter(
            "degraded_requests", "Calls answered with a no-op because the cache is unhealthy", ("operation",)
        )
        self.request_errors = self._counter(
            "request_errors",
            "Calls answered with a no-op because the cache itself failed or refused",
            ("operation", "reason"),
        )

    def _add_storage(self) -> None:
        backend = ("backend",)
        self.local_cache_usage = self._gauge("local_cache_usage", "Bytes of the arena in use")
        self.evicted_chunks = self._counter("evicted_chunks", "Chunks evicted to make room", backend)
        self.eviction_report_errors = self._counter(
            "eviction_report_errors", "Times a backend raised or gave no answer when asked what it evicted", backend
        )
        self.allocation_failures = self._counter("allocation_failures", "Blocks refused because the arena was full")
        self.expired_leases = self._counter("expired_leases", "Promises of a lookup that nobody came for")
        self.lost_chunks = self._counter(
            "lost_chunks", "Chunks not written to, or not readable from, a backend", ("backend", "reason")
        )
        self.written_chunks = self._counter("written_chunks", "Chunks written behind to a backend", backend)
        self.loaded_chunks = self._counter("loaded_chunks", "Chunks loaded from a backend", backend)
        self.hasty_calls = self._counter(
            "hasty_calls", "Calls whose caller left too early to say anything of the backend", backend
        )
        self.write_behind_queue = self._gauge("write_behind_queue_chunks", "Chunks waiting to be written", backend)
        self.write_behind_limit = self._gauge(
            "write_behind_limit_chunks", "Most chunks that may wait to be written", backend
        )

    def watch_tenants(self, usage: Callable[[], Sequence[TenantUsage]]) -> None:
        """Show how the tenants of tier 0 fare; told once, by tier 0."""
        self.registry.register(TenantCollector(usage))

    def watch_bus(self, bus: BusView) -> None:
        """Show how the subscribers of an event bus fare; told once, by the bus."""
        self.registry.register(EventBusCollector(bus))

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"lmcache:{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"lmcache:{name}", text, labels, registry=self.registry)
