"""Tier 0 with quotas, in pages."""

from __future__ import annotations

from lmcache_core.contracts.control import TenantUsage
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena, Block
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.tenants import TenantQuota, Tenants

PAGE = ALIGNMENT_BYTES
NAMESPACE = KeyNamespace(model_name="m", world_size=1, rank=0, dtype="float32", layout="l", chunk_tokens=4)


class Tier:
    """Tier 0 with small blocks, each a whole number of pages."""

    def __init__(self, pages: int, *, default_pages: int = 0, **quotas_pages: int) -> None:
        named = [
            TenantQuota(label=name, salt_hash="" if name == "default" else name, quota_bytes=quota * PAGE)
            for name, quota in quotas_pages.items()
        ]
        self.arena = Arena(pages * PAGE)
        self.metrics = CacheMetrics()
        self.local = LocalCPUBackend(
            self.arena,
            use_hot=True,
            metrics=self.metrics,
            journal=Journal(EventBus(self.metrics)),
            tenants=Tenants(named, default_pages * PAGE),
        )

    def store(self, tenant: str, *names: str, pages: int = 1) -> int:
        """Store chunks one after the other; give how many had room."""
        return sum(self._store(tenant, name, pages) for name in names)

    def _store(self, tenant: str, name: str, pages: int) -> int:
        blocks = self.local.reserve(1, pages * PAGE, tenant=tenant)
        self.local.commit(NAMESPACE, [f"{tenant} {name}".encode()][: len(blocks)], blocks)
        self.arena.release(blocks)
        return len(blocks)

    def lease(self, tenant: str, *names: str) -> list[Block]:
        return self.local.lease_run([f"{tenant} {name}".encode() for name in names])

    def kept(self, tenant: str) -> list[str]:
        return [name for name in "abcdefghij" if self.local.has_run([f"{tenant} {name}".encode()])]

    def usage(self, label: str) -> TenantUsage:
        return next(one for one in self.local.tenant_usage() if one.label == label)
