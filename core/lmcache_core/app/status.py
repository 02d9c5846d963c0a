"""The status of a cache server as one document, for ``lmcachectl status`` and ``top``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmcache_core.app.host import CacheHost
from lmcache_core.contracts.control import TenantUsage
from lmcache_core.contracts.report import BackendReport, HealthReport
from lmcache_core.storage import local_cpu

_COUNTERS = {
    "requested_tokens": "num_requested_tokens",
    "hit_tokens": "num_hit_tokens",
    "stored_tokens": "num_stored_tokens",
    "retrieved_tokens": "num_retrieved_tokens",
    "stored_bytes": "stored_bytes",
    "retrieved_bytes": "retrieved_bytes",
}


def describe_host(host: CacheHost) -> dict[str, Any]:
    """Tell of tiers, health and counters; asks no store. Every value is of plain JSON.

    Counters only grow within one process; whoever wants rates asks twice.
    """
    report = host.health.report()
    usage = host.local_usage()
    fronts, plugins = host.fronts, host.registry.in_force()
    return {
        "instance_id": host.labels["instance_id"],
        "health": _health(report),
        "plugins": {"digest": plugins.digest, "in_force": [list(entry) for entry in plugins.entries]},
        "plugins_failed": dict(report.plugins_failed),
        "arena": {
            "capacity_bytes": usage.capacity_bytes,
            "used_bytes": usage.used_bytes,
            "chunks": usage.chunks,
            "promises": usage.leases,
        },
        "tiers": [_local_tier(host, report), *(_tier(host, backend) for backend in host.storage.describe())],
        "tenants": [_tenant(one) for one in host.storage.tenants() if one.bytes_used or one.quota_bytes],
        "counters": {name: _count(host, family) for name, family in _COUNTERS.items()},
        "http": None if fronts.http is None else fronts.http.address,
        "grpc": None if fronts.grpc is None else fronts.grpc.address,
    }


def _tenant(usage: TenantUsage) -> Mapping[str, Any]:
    return {
        "tenant": usage.label,
        "used_bytes": usage.bytes_used,
        "quota_bytes": usage.quota_bytes or None,
        "chunks": usage.chunks,
        "evicted_chunks": usage.evicted_chunks,
        "refused_blocks": usage.refused_blocks,
    }


def _count(host: CacheHost, family: str) -> float:
    return host.metrics.registry.get_sample_value(f"lmcache:{family}_total") or 0.0


def _health(report: HealthReport) -> Mapping[str, Any]:
    return {
        "healthy": report.healthy,
        "state": report.state.value,
        "reason": report.reason,
        "since_s": report.since_s,
    }


def _local_tier(host: CacheHost, report: HealthReport) -> Mapping[str, Any]:
    usage = host.local_usage()
    left_out = local_cpu.NAME in report.bypassed
    return {
        "name": local_cpu.NAME,
        "url": "",
        "state": "left out" if left_out else "up" if host.storage.local.use_hot else "staging only",
        "waiting_chunks": 0,
        "used_bytes": usage.used_bytes,
        "capacity_bytes": usage.capacity_bytes,
        "reason": "",
    }


def _tier(host: CacheHost, backend: BackendReport) -> Mapping[str, Any]:
    usage = next(tier for tier in host.tiers if tier.name == backend.name).usage()
    holds = [f"{hold.owner}: {hold.reason}" for hold in backend.holds]
    closed = backend.breaker.state == "closed"
    return {
        "name": backend.name,
        "url": backend.url,
        "state": "left out" if holds else "up" if closed else backend.breaker.state,
        "waiting_chunks": backend.waiting_chunks,
        "used_bytes": None if usage.bytes_used < 0 else usage.bytes_used,
        "capacity_bytes": usage.capacity_bytes or None,
        "reason": "; ".join(holds) if holds else "" if closed else backend.breaker.reason,
    }
