"""A real cache with its pages, over a store in a folder."""

from __future__ import annotations

from pathlib import Path

from lmcache_core import CacheManager, KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKEN = "a-token-of-the-tests"


def running_cache(folder: Path, **overrides: object) -> CacheManager:
    """Not started yet. A second one on the same folder is this cache after a restart."""
    values: dict[str, object] = {
        "chunk_size": 4,
        "max_local_cpu_size": 0.001,
        "remote_url": f"file://{folder}/kv",
        "internal_api_server_enabled": True,
        "internal_api_server_port_start": 0,
        "health_state_dir": str(folder / "state"),
        **overrides,
    }
    return CacheManager.from_config(overrides=values, environ={}, layout=LAYOUT, model_name="m")
