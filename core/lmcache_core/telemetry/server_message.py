"""How a cache server is set up, without what would name anything."""

from __future__ import annotations

from lmcache_core.config.model import CoreConfig
from lmcache_core.telemetry.messages import MPServerMessage
from lmcache_core.version import __version__

_GIB = 1 << 30


def server_message(values: CoreConfig) -> MPServerMessage:
    """Describe the configuration of a server; addresses and names stay out of it."""
    schemes = ["disk"] if values.local_disk is not None else []
    schemes += sorted({remote.url.parsed.scheme for remote in values.all_remotes()})
    return MPServerMessage(
        lmcache_version=__version__,
        chunk_size=values.chunk_size,
        hash_algorithm="sha256",
        engine_type="prefix",
        enable_segmented_prefix=False,
        enable_dedup_content=False,
        supported_transfer_mode="shared_memory",
        separate_object_groups=False,
        max_gpu_workers=0,
        max_cpu_workers=values.backend_connections,
        p2p_enabled=False,
        l1_size_bytes=int(values.max_local_cpu_size * _GIB),
        l1_medium="dram",
        l1_shm_enabled=True,
        eviction_policy="lru",
        l2_adapter_types=",".join(schemes),
        l2_serde_types=",".join(values.remote_serde for _ in schemes),
        l2_store_policy="write_behind",
        l2_prefetch_policy="lookup",
    )
