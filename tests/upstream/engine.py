"""An engine of LMCache on a CPU, with a KV cache in plain tensors."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector import GPUConnectorInterface
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.standalone.manager import StandaloneLMCacheManager

LAYERS, HEADS, HEAD_SIZE, TOKENS, CHUNK = 3, 2, 16, 1000, 256


class PlainKV(GPUConnectorInterface):
    """Per layer a tensor of K and V, or with MLA of what both come from, token after token."""

    def __init__(self, sides: int) -> None:
        torch.manual_seed(7)
        self.layers = [torch.randn(sides, TOKENS, HEADS * HEAD_SIZE).to(torch.bfloat16) for _ in range(LAYERS)]
        self.original = [layer.clone() for layer in self.layers]

    def forget(self) -> None:
        for layer in self.layers:
            layer.zero_()

    def from_gpu(self, memory: Any, start: int, end: int, **_: Any) -> None:
        for number, layer in enumerate(self.layers):
            memory.tensor[:, number].copy_(layer[:, start:end])

    def to_gpu(self, memory: Any, start: int, end: int, **_: Any) -> None:
        for number, layer in enumerate(self.layers):
            layer[:, start:end].copy_(memory.tensor[:, number])

    def batched_from_gpu(self, memories: Any, starts: Any, ends: Any, **_: Any) -> None:
        for each in zip(memories, starts, ends, strict=True):
            self.from_gpu(*each)

    def batched_to_gpu(self, memories: Any, starts: Any, ends: Any, **_: Any) -> None:
        for each in zip(memories, starts, ends, strict=True):
            self.to_gpu(*each)

    def get_shape(self, num_tokens: int) -> Any:
        return None


def _to_itself(value: Any, source: int) -> Any:
    """Broadcast among one worker, which LMCache does with MLA."""
    del source
    return value


class Engine:
    """LMCache's manager, engine and monitor.

    Args:
        instance_id: Its name.
        use_mla: Of a model with multi-head latent attention.
        config: Keys of LMCache's configuration.
    """

    def __init__(self, instance_id: str, *, use_mla: bool = False, **config: Any) -> None:
        keys = {"local_cpu": False, "max_local_cpu_size": 0.05, "save_unfull_chunk": True, **config}
        keys["extra_config"] = {"ping_interval": 0.05, **keys.get("extra_config", {})}
        sides = 1 if use_mla else 2
        self.kv = PlainKV(sides)
        self.config = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK, lmcache_instance_id=instance_id, **keys)
        metadata = LMCacheMetadata(
            model_name="acme/model",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(LAYERS, sides, CHUNK, HEADS, HEAD_SIZE),
            use_mla=use_mla,
            role="worker",
            chunk_size=CHUNK,
        )
        self.manager = StandaloneLMCacheManager(
            config=self.config,
            metadata=metadata,
            gpu_connector=self.kv,
            broadcast_fn=_to_itself,
            broadcast_object_fn=_to_itself,
        )
        self.manager.start_services()
        self.manager.post_init()
        self.engine = self.manager.lmcache_engine
        self.monitor = self.manager.health_monitor
        self.storage = self.engine.storage_manager
        self.tokens = list(range(TOKENS))

    @property
    def remote(self) -> Any:
        return next(backend for name, backend in self.storage.storage_backends.items() if name.startswith("Remote"))

    @property
    def check_names(self) -> list[str]:
        return [check.name() for check in self.monitor.get_health_checks()]

    def check(self, name: str) -> Any:
        return next(check for check in self.monitor.get_health_checks() if check.name() == name)

    def store(self) -> None:
        """Store the prompt and wait until the remote has it, or has lost it."""
        self.engine.store(torch.tensor(self.tokens), slot_mapping=torch.arange(TOKENS), kvcaches=self.kv.layers)
        end = time.monotonic() + 20.0
        while self.remote.put_tasks:
            assert time.monotonic() < end, "the puts do not end"
            time.sleep(0.005)

    def lookup(self) -> int:
        return int(self.engine.lookup(self.tokens))

    def retrieve(self) -> int:
        """Fetch the prompt into an empty KV cache; give the tokens that came, which are right."""
        self.kv.forget()
        mask = self.engine.retrieve(
            torch.tensor(self.tokens), slot_mapping=torch.arange(TOKENS), kvcaches=self.kv.layers
        )
        count = int(mask.sum())
        assert mask[:count].all()
        for layer, original in zip(self.kv.layers, self.kv.original, strict=True):
            assert torch.equal(layer[:, :count], original[:, :count])
            assert not layer[:, count:].any()
        return count

    def stop(self) -> None:
        """Stop it; with its own Redis connector only its monitor, as closing that blocks its event loop for ever."""
        if str(self.config.remote_url).startswith("redis://"):
            self.monitor.stop()
            return
        with contextlib.suppress(Exception):
            self.manager.stop_services()
