"""Tier 0 against the machine: store and retrieve as a share of memcpy, lookup as a multiple of bare SHA-256.

Every figure is a ratio within one run, medians over alternating rounds. Run: ``make bench`` or
``python bench/engine.py``.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from lmcache_core import KVLayout
from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.local import LocalAccess
from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.engine import CacheEngine
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import Arena
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.manager import StorageManager
from lmcache_core.workers import WorkerPool

CHUNK_TOKENS = 256
ROUNDS = 9
SHAPES = {
    "Llama-3-8B, 32 MiB a chunk": (KVLayout(num_layers=32, num_kv_heads=8, head_size=128, dtype="bfloat16"), 8),
    "SmolLM2, 5.6 MiB a chunk": (KVLayout(num_layers=30, num_kv_heads=3, head_size=64, dtype="bfloat16"), 32),
    "DeepSeek MLA, 17 MiB a chunk": (
        KVLayout(num_layers=61, num_kv_heads=1, head_size=576, dtype="bfloat16", use_mla=True),
        12,
    ),
}


def build(layout: KVLayout, chunks: int) -> CacheEngine:
    """An engine with tier 0 alone, large enough for the prompt."""
    metrics = CacheMetrics()
    chunk_format = ChunkFormat.of(layout, model_name="bench", world_size=1, ranks=(0,), chunk_tokens=CHUNK_TOKENS)
    journal = Journal(EventBus(metrics))
    arena = Arena((chunk_format.codec.frame_bytes + 4096) * chunks)
    local = LocalCPUBackend(arena, use_hot=True, metrics=metrics, journal=journal)
    storage = StorageManager(
        local=local, tiers=[], metrics=metrics, journal=journal, write_behind_chunks=1, lease_ttl_s=300.0
    )
    access = LocalAccess(
        storage,
        chunk_format,
        is_healthy=lambda: True,
        journal=journal,
        metrics=metrics,
        loaders=WorkerPool("bench-prefetch", 1),
    )
    return CacheEngine(
        access,
        make_adapter=lambda chunk_tokens: TensorAdapter(layout, chunk_tokens),
        metrics=metrics,
        timeout_s=10.0,
    )


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def copy_ratio(layout: KVLayout, chunks: int) -> tuple[float, float, float]:
    """GB/s of memcpy, and store and retrieve as shares of it."""
    engine = build(layout, chunks)
    tokens = np.arange(chunks * CHUNK_TOKENS, dtype=np.int32)
    kv = torch.empty(layout.kv_shape(len(tokens)), dtype=torch.bfloat16).fill_(1.5)
    out = torch.zeros_like(kv)
    source = np.ones(kv.numel() * 2, dtype=np.uint8)
    target = np.zeros_like(source)
    engine.store(tokens, kv)  # first touch of every page
    engine.clear()
    rows = []
    for _ in range(ROUNDS):
        copy_s = timed(lambda: np.copyto(target, source))
        store_s = timed(lambda: engine.store(tokens, kv))
        retrieve_s = timed(lambda: engine.retrieve(tokens, out))
        engine.clear()
        rows.append((source.nbytes / copy_s / 1e9, copy_s / store_s, copy_s / retrieve_s))
    assert torch.equal(out, kv)
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def lookup_ratio(tokens_count: int) -> tuple[float, float]:
    """Microseconds a chunk of bare chained SHA-256, and the lookup of a resident prefix as a multiple of it."""
    layout = KVLayout(num_layers=1, num_kv_heads=1, head_size=1, dtype="float16")
    chunks = tokens_count // CHUNK_TOKENS
    engine = build(layout, chunks)
    tokens = np.arange(tokens_count, dtype=np.int32)
    engine.store(tokens, torch.zeros(layout.kv_shape(tokens_count), dtype=torch.float16))

    def bare() -> None:
        raw = tokens.tobytes()
        digest = b""
        for start in range(0, len(raw), CHUNK_TOKENS * 4):
            digest = hashlib.sha256(digest + raw[start : start + CHUNK_TOKENS * 4]).digest()

    rows = []
    for _ in range(ROUNDS * 3):
        bare_s = timed(bare)
        rows.append((bare_s / chunks * 1e6, timed(lambda: engine.lookup(tokens)) / bare_s))
        engine.release(tokens)
    return tuple(statistics.median(column) for column in zip(*rows, strict=True))


def main() -> None:
    """Print the table."""
    print(f"{'shape':32} {'memcpy GB/s':>12} {'store':>8} {'retrieve':>9}")
    for name, (layout, chunks) in SHAPES.items():
        speed, store, retrieve = copy_ratio(layout, chunks)
        print(f"{name:32} {speed:12.2f} {store:8.2f} {retrieve:9.2f}")
    print(f"\n{'resident prompt':32} {'SHA us/chunk':>12} {'lookup':>8}")
    for tokens_count in (2_048, 16_384, 131_072):
        bare_us, ratio = lookup_ratio(tokens_count)
        print(f"{tokens_count:25,} tokens {bare_us:12.2f} {ratio:7.2f}x")


if __name__ == "__main__":
    main()
