"""Both sides of the connector without an engine: vLLM's objects as the connector reads them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from lmcache_plugins.vllm.connector import LMCoreConnector

BLOCKS, BLOCK_TOKENS = 8, 32
NAMES = ("layer.0", "layer.1")


class FullAttentionSpec:
    """As vLLM's, whose name is what the connector goes by."""

    block_size, num_kv_heads, head_size, dtype, kv_quant_mode = BLOCK_TOKENS, 2, 16, torch.float32, 0


class SlidingWindowSpec(FullAttentionSpec):
    sliding_window = 40


class MambaSpec(FullAttentionSpec):
    pass


def vllm_config(extra: dict[str, Any] | None = None, policy: str = "recompute") -> Any:
    layer = SimpleNamespace(attn_backend=SimpleNamespace(get_name=lambda: "CPU_ATTN"), isa="vec")
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config={"lmcache.chunk_size": 32, "lmcache.max_local_cpu_size": 0.01, **(extra or {})},
            kv_load_failure_policy=policy,
            is_kv_consumer=True,
            is_kv_producer=True,
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        compilation_config=SimpleNamespace(static_forward_context=dict.fromkeys(NAMES, layer)),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1, rank=0),
        model_config=SimpleNamespace(
            model="toy", revision=None, quantization=None, hf_config=SimpleNamespace(model_type="toy")
        ),
    )


def kv_cache_config(spec: Any = FullAttentionSpec) -> Any:
    return SimpleNamespace(
        num_blocks=BLOCKS,
        kv_cache_groups=[SimpleNamespace(layer_names=list(NAMES), kv_cache_spec=spec())],
        prefix_cacheable_group_ids=(0,),
    )


def kv_caches() -> dict[str, torch.Tensor]:
    return {name: torch.randn(BLOCKS, 2, BLOCK_TOKENS, 32) for name in NAMES}


def a_request(tokens: int = 100, request_id: str = "r") -> Any:
    return SimpleNamespace(
        request_id=request_id,
        all_token_ids=list(range(tokens)),
        num_prompt_tokens=tokens,
        num_preemptions=0,
        cache_salt=None,
        lora_request=None,
        mm_features=[],
    )


def a_step(tokens: int = 100, blocks: tuple[int, ...] = (1, 2, 3, 4)) -> Any:
    new = SimpleNamespace(req_id="r", num_computed_tokens=0, block_ids=(list(blocks),))
    known = SimpleNamespace(req_ids=[], num_computed_tokens=[], new_block_ids=[], resumed_req_ids=set())
    return SimpleNamespace(
        num_scheduled_tokens={"r": tokens},
        scheduled_new_reqs=[new],
        scheduled_cached_reqs=known,
        finished_req_ids=set(),
    )


def the_blocks(*ids: int) -> Any:
    return SimpleNamespace(get_block_ids=lambda: (list(ids),))


class Pair:
    """Both sides, as vLLM makes and joins them."""

    def __init__(self, config: Any, caches: Any = None, spec: Any = FullAttentionSpec) -> None:
        self.caches = kv_caches() if caches is None else caches
        self.worker = LMCoreConnector(config, KVConnectorRole.WORKER, kv_cache_config(spec))
        self.worker.register_kv_caches(self.caches)
        self.scheduler = LMCoreConnector(config, KVConnectorRole.SCHEDULER, kv_cache_config(spec))
        self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): self.worker.get_handshake_metadata()})

    def close(self) -> None:
        self.scheduler.shutdown()
        self.worker.shutdown()

    def admit(self, request: Any, *blocks: int) -> tuple[int | None, bool]:
        """Have a request matched and given blocks."""
        found: int | None = None
        loads = False
        while found is None:
            found, loads = self.scheduler.get_num_new_matched_tokens(request, 0)
        self.scheduler.update_state_after_alloc(request, the_blocks(*blocks), found)
        return found, loads

    def run(self, step: Any) -> tuple[set[str], set[int]]:
        """Carry a step out in the worker; give the loads that ended, and the blocks that stayed empty."""
        metadata = pickle.loads(pickle.dumps(self.scheduler.build_connector_meta(step)))
        worker = self.worker
        worker.bind_connector_metadata(metadata)
        worker.start_load_kv(None)
        for name in NAMES:
            worker.wait_for_layer_load(name)
            worker.save_kv_layer(name, self.caches[name], None)
        worker.wait_for_save()
        wanted = {order.request_id for order in metadata.plan.loads}
        ended: set[str] = set()
        bad: set[int] = set()
        while True:
            ended |= worker.get_finished(set())[1] or set()
            bad |= worker.get_block_ids_with_load_errors()
            if ended >= wanted:
                worker.clear_connector_metadata()
                return ended, bad


def idle_step() -> Any:
    known = SimpleNamespace(req_ids=[], num_computed_tokens=[], new_block_ids=[], resumed_req_ids=set())
    return SimpleNamespace(
        num_scheduled_tokens={}, scheduled_new_reqs=[], scheduled_cached_reqs=known, finished_req_ids=set()
    )
