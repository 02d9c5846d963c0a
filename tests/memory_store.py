"""A third party's store, kept in a dict, that fails when told; and the parts of an engine around it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lmcache_core import (
    BackendError,
    BackendTimeoutError,
    ChunkKey,
    Frame,
    KeyNamespace,
    KVLayout,
    LoadResult,
    StorageBackend,
)
from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.local import LocalAccess
from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.codec.frame import FrameCodec
from lmcache_core.engine import CacheEngine
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.breaker import BreakerTerms
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.manager import StorageManager
from lmcache_core.storage.tier_setup import TierSetup
from lmcache_core.workers import WorkerPool

CHUNK_TOKENS = 4
LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")


class MemoryStore(StorageBackend):
    """Keeps frames in a dict. `fault` runs first in every call and may raise or block."""

    def __init__(self) -> None:
        self.frames: dict[bytes, bytes] = {}
        self.fault: Callable[[str], None] = lambda _call: None
        self.results: dict[bytes, LoadResult] = {}
        self.closed = False

    def contains(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        self.fault("contains")
        return next((n for n, key in enumerate(keys) if key.digest not in self.frames), len(keys))

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, deadline: float) -> list[LoadResult]:
        self.fault("load")
        return [self._load(key, out) for key, out in zip(keys, outs, strict=True)]

    def _load(self, key: ChunkKey, out: memoryview) -> LoadResult:
        if key.digest in self.results:
            return self.results[key.digest]
        frame = self.frames.get(key.digest)
        if frame is None:
            return LoadResult.MISS
        if len(frame) != len(out):
            return LoadResult.CORRUPT
        out[:] = frame
        return LoadResult.HIT

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, deadline: float) -> None:
        self.fault("store")
        self.frames.update({key.digest: bytes(frame) for key, frame in items})

    def delete(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        self.fault("delete")
        return sum(self.frames.pop(key.digest, None) is not None for key in keys)

    def ping(self, *, deadline: float) -> None:
        self.fault("ping")

    def close(self) -> None:
        self.closed = True


@dataclass
class Options:
    """Health keys of one remote."""

    ping_interval: float = 30.0
    ping_timeout: float = 5.0
    get_blocking_failed_threshold: int = 10
    waiting_time_for_recovery: float = 300.0
    fallback_policy: str | tuple[str, ...] = "recompute"
    policy_ladder_secs: float = 30.0


class Gate:
    """A hung store: blocks calls until opened."""

    def __init__(self, *calls: str) -> None:
        self._calls = calls
        self._open = threading.Event()
        self._held: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.entered = threading.Event()

    @property
    def held(self) -> int:
        """Calls that were blocked, now or before."""
        return self._held.qsize()

    def __call__(self, call: str) -> None:
        if call in self._calls:
            self._held.put(call)
            self.entered.set()
            self._open.wait()

    def open(self) -> None:
        self._open.set()


def refuse(*calls: str, error: Exception | None = None) -> Callable[[str], None]:
    def fault(call: str) -> None:
        if call in calls:
            raise error or BackendError("store refused")

    return fault


@dataclass
class Rig:
    """An engine with one `MemoryStore` behind tier 0, all parts at hand."""

    chunks: int = 8
    use_hot: bool = True
    timeout_s: float = 5.0
    lease_ttl_s: float = 300.0
    stores: list[MemoryStore] = field(default_factory=lambda: [MemoryStore()])
    clock: Callable[[], float] = time.monotonic
    layout: KVLayout = LAYOUT
    write_behind_chunks: int = 64
    shared: bool = False
    save_unfull_chunk: bool = False
    breaker: BreakerTerms = field(default_factory=BreakerTerms)

    def __post_init__(self) -> None:
        self.healthy = True
        self.metrics = CacheMetrics()
        self.codec = FrameCodec(self.layout, CHUNK_TOKENS)
        block_bytes = -(-self.codec.frame_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.arena = Arena(self.chunks * block_bytes, shared=self.shared)
        self.bus = EventBus(self.metrics)
        self.journal = Journal(self.bus)
        self.local = LocalCPUBackend(
            self.arena,
            use_hot=self.use_hot,
            metrics=self.metrics,
            journal=self.journal,
        )
        self.failures: list[str] = []
        self.tiers = [
            GuardedTier(
                store,
                TierSetup(
                    name=f"RemoteBackend-{number}",
                    url=f"memory://{number}",
                    kind="memory",
                    breaker=self.breaker,
                    options=Options(),
                    connections=2,
                    timeout_s=self.timeout_s,
                ),
                self.metrics,
                journal=self.journal,
                on_failure=lambda: self.failures.append("x"),
                clock=self.clock,
            )
            for number, store in enumerate(self.stores)
        ]
        self.storage = StorageManager(
            local=self.local,
            tiers=self.tiers,
            metrics=self.metrics,
            journal=self.journal,
            write_behind_chunks=self.write_behind_chunks,
            lease_ttl_s=self.lease_ttl_s,
            clock=self.clock,
        )
        self.format = ChunkFormat(
            self.codec,
            chunk_tokens=CHUNK_TOKENS,
            namespace=self.namespace,
            ranks=(0,),
            save_unfull_chunk=self.save_unfull_chunk,
        )
        self.loaders = WorkerPool("test-prefetch", 4)
        self.access = LocalAccess(
            self.storage,
            self.format,
            is_healthy=lambda: self.healthy,
            journal=self.journal,
            metrics=self.metrics,
            loaders=self.loaders,
            engine_id="rig",
        )
        self.engine = CacheEngine(
            self.access,
            make_adapter=lambda chunk_tokens: TensorAdapter(self.layout, chunk_tokens),
            metrics=self.metrics,
            timeout_s=self.timeout_s,
        )

    def namespace(self, rank: int = 0, salt_hash: str = "", variant_hash: str = "") -> KeyNamespace:
        return KeyNamespace(
            model_name="m",
            world_size=1,
            rank=rank,
            dtype=self.layout.dtype,
            layout=self.layout.fingerprint,
            chunk_tokens=CHUNK_TOKENS,
            salt_hash=salt_hash,
            variant_hash=variant_hash,
            payload_bytes=self.codec.payload_bytes,
        )

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"lmcache:{name}", labels) or 0.0

    def close(self) -> None:
        for store in self.stores:
            if isinstance(store.fault, Gate):
                store.fault.open()
        self.storage.close(1.0)
        self.bus.stop(1.0)


__all__ = ["CHUNK_TOKENS", "LAYOUT", "BackendTimeoutError", "Gate", "MemoryStore", "Options", "Rig", "refuse"]
