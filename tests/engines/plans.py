"""The engines of the tests, in the order in which these use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engines.engine import Settings

QUICK = {"ping_interval": 0.5, "ping_timeout": 0.4, "waiting_time_for_recovery": 0.5}
"""Health checks that notice and recover within a test."""


def plans(*, store: Path, redis_url: str, server_address: str) -> dict[str, Settings]:
    """Give each engine's settings."""

    def keys(**values: Any) -> dict[str, Any]:
        return {f"lmcache.{name}": value for name, value in {"chunk_size": 64, **values}.items()}

    file_url = f"file://{store}"
    pages = {"internal_api_server_enabled": True, "internal_api_server_port_start": 0}
    return {
        "plain": Settings(),
        "file cold": Settings(keys(remote_url=file_url, **pages)),
        # A cache of 416 tokens: long requests preempt each other. Steps of 96 tokens: prefill in pieces.
        "file warm": Settings(
            keys(remote_url=file_url),
            {
                "enable_prefix_caching": True,
                "num_gpu_blocks_override": 14,
                "max_num_batched_tokens": 96,
                "max_num_seqs": 4,
                "max_model_len": 416,
            },
        ),
        "redis cold": Settings(keys(remote_url=redis_url, blocking_timeout_secs=1.0, extra_config=QUICK)),
        "redis warm": Settings(
            keys(remote_url=redis_url, blocking_timeout_secs=1.0, extra_config=QUICK, async_load=False)
        ),
        "server": Settings(keys(mode="server", server_address=server_address)),
    }
