"""How each tenant fares, by a bounded set of labels, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmcache_core.contracts.control import TenantUsage

_LABEL = ("tenant",)

_GAUGES: tuple[tuple[str, str, Callable[[TenantUsage], int]], ...] = (
    ("tenant_used_bytes", "Bytes of CPU memory in a tenant's blocks", lambda one: one.bytes_used),
    ("tenant_quota_bytes", "Most that they may be; 0 for no bound", lambda one: one.quota_bytes),
    ("tenant_chunks", "A tenant's chunks in CPU memory", lambda one: one.chunks),
)
_COUNTERS: tuple[tuple[str, str, Callable[[TenantUsage], int]], ...] = (
    ("tenant_evicted_chunks", "A tenant's chunks that made room", lambda one: one.evicted_chunks),
    ("tenant_refused_blocks", "Blocks that a tenant was refused", lambda one: one.refused_blocks),
    ("tenant_requested_tokens", "Tokens asked for in a tenant's lookups", lambda one: one.requested_tokens),
    ("tenant_hit_tokens", "Tokens found in a tenant's lookups", lambda one: one.hit_tokens),
)


class TenantCollector(Collector):
    """Bytes, chunks and tokens by tenant. Any thread may scrape.

    Args:
        usage: Asked at each scrape; gives each label once.
    """

    def __init__(self, usage: Callable[[], Sequence[TenantUsage]]) -> None:
        self._usage = usage

    def describe(self) -> Iterable[Metric]:
        """Name the families without asking; used to find clashes at registration."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Read all labels now."""
        return self._families(self._usage())

    def _families(self, usage: Sequence[TenantUsage]) -> Iterable[Metric]:
        gauges = [(GaugeMetricFamily(f"lmcache:{name}", text, labels=_LABEL), read) for name, text, read in _GAUGES]
        counters = [
            (CounterMetricFamily(f"lmcache:{name}", text, labels=_LABEL), read) for name, text, read in _COUNTERS
        ]
        for one in usage:
            for gauge, read in gauges:
                gauge.add_metric((one.label,), read(one))
            for counter, read in counters:
                counter.add_metric((one.label,), read(one))
        return [*(family for family, _ in gauges), *(family for family, _ in counters)]
