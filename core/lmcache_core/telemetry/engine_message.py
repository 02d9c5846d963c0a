"""How an in-process cache is set up, without what would name anything."""

from __future__ import annotations

from lmcache_core.config.model import CoreConfig
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.telemetry.attribution import public_model_name
from lmcache_core.telemetry.messages import EngineMessage


def engine_message(
    values: CoreConfig, layout: KVLayout | None, *, model_name: str, world_size: int, rank: int
) -> EngineMessage:
    """Describe the configuration and layout.

    Args:
        values: The configuration.
        layout: Of the engine's KV; None where no engine runs, as in a preview.
        model_name: As the engine has it; reported only if it can be a public name.
        world_size: Ranks that split the KV.
        rank: Which of them this is.
    """
    devices = [name for name, used in (("cpu", values.local_cpu), ("disk", values.local_disk is not None)) if used]
    schemes = sorted({remote.url.parsed.scheme for remote in values.all_remotes()})
    return EngineMessage(
        chunksize=values.chunk_size,
        local_device="+".join(devices),
        max_local_cache_size=values.max_local_cpu_size,
        remote_schemes=",".join(schemes),
        remote_serde=values.remote_serde,
        pipelined_backend=False,
        save_decode_cache=False,
        enable_blending=False,
        blend_recompute_ratio=0.0,
        blend_min_tokens=0,
        model_name=public_model_name(model_name) if model_name else "",
        world_size=world_size,
        worker_id=rank,
        kv_dtype=layout.dtype if layout is not None else "",
        kv_shape=_shape(layout, values.chunk_size) if layout is not None else "",
    )


def _shape(layout: KVLayout, chunk_tokens: int) -> str:
    kv_size = 1 if layout.use_mla else 2
    return f"{layout.num_layers}x{kv_size}x{chunk_tokens}x{layout.num_kv_heads}x{layout.head_size}"
