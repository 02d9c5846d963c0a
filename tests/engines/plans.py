"""The engines of the tests, in the order in which these use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engines.engine import Settings

QUICK = {"ping_interval": 0.5, "ping_timeout": 0.4, "waiting_time_for_recovery": 0.5}
"""Health checks that notice and recover within a test."""

PAGES = {"internal_api_server_enabled": True, "internal_api_server_port_start": 0}
"""The cache's own pages, on any free port."""


def plans(*, store: Path, redis_url: str, server_address: str) -> dict[str, Settings]:
    """Give each engine's settings."""

    def keys(**values: Any) -> dict[str, Any]:
        return {f"lmcache.{name}": value for name, value in {"chunk_size": 64, **values}.items()}

    file_url = f"file://{store}"
    two = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    in_server = keys(mode="server", server_address=server_address)

    def tiny(extra: dict[str, Any] | None = None, **vllm: Any) -> Settings:
        return Settings(extra, "tiny", vllm)

    kept = keys(remote_url=file_url)
    return {
        "tiny plain": tiny(),
        "adapters": tiny(keys(), enable_lora=True, max_lora_rank=8, max_loras=2),
        "blocks of 128": tiny(kept, block_size=128),
        "blocks of 128, again": tiny(kept, block_size=128, enable_prefix_caching=True),
        "blocks of 64": tiny(kept, block_size=64),
        "blocks of 64, again": tiny(kept, block_size=64, enable_prefix_caching=True),
        "file cold": tiny(keys(remote_url=file_url, **PAGES)),
        # A cache of 416 tokens: long requests preempt each other. Steps of 96 tokens: prefill in pieces.
        "file warm": tiny(
            kept,
            enable_prefix_caching=True,
            num_gpu_blocks_override=14,
            max_num_batched_tokens=96,
            max_num_seqs=4,
            max_model_len=416,
        ),
        "plain": Settings(),
        "redis cold": Settings(keys(remote_url=redis_url, blocking_timeout_secs=1.0, extra_config=QUICK, **PAGES)),
        "redis warm": Settings(
            keys(remote_url=redis_url, blocking_timeout_secs=1.0, extra_config=QUICK, async_load=False)
        ),
        "server": Settings(in_server),
        "two ranks, plain": tiny(**two),
        "two ranks": tiny(kept, **two),
        "two ranks, again": tiny(kept, **two),
        "two ranks, server": tiny(in_server, **two),
        "one rank": tiny(kept),
        "whole prompts": tiny({**kept, "lmcache.save_unfull_chunk": True}),
        "whole prompts, again": tiny({**kept, "lmcache.save_unfull_chunk": True}, enable_prefix_caching=True),
        "windows, plain": Settings(None, "windows"),
        "windows": Settings(kept, "windows"),
        # Room for two of the long prompts, which preempt each other, and prefill in pieces.
        "windows, again": Settings(
            {**kept, "lmcache.save_unfull_chunk": True, "lmcache.save_generated": True},
            "windows",
            {"enable_prefix_caching": True, "num_gpu_blocks_override": 66, "max_num_batched_tokens": 160},
        ),
        # Room for one of two long prompts and a part of the other.
        "windows, little room": Settings(
            keys(), "windows", {"num_gpu_blocks_override": 68, "max_num_batched_tokens": 512}
        ),
        "windows as full attention": Settings(kept, "windows", {"disable_hybrid_kv_cache_manager": True}),
        "latent, plain": Settings(None, "latent"),
        "latent": Settings(kept, "latent"),
    }
