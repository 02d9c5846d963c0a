"""What vLLM's configuration says of the model and its KV, as the layout that keys are made of.

vLLM's objects are read by their attributes' names; nothing of vLLM is imported.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmcache_core import KVGroup, KVLayout, LayoutError

_KINDS = {"FullAttentionSpec": "full", "MLAAttentionSpec": "mla", "SlidingWindowSpec": "sliding_window"}
"""vLLM's cache specs whose blocks of a prefix stay valid whatever follows; any other is refused by its name."""

_WINDOWED = _KINDS["SlidingWindowSpec"]

_SERVED_QUANTIZATION = (0, 1)
"""vLLM's ``KVQuantMode``: none, and fp8 with one scale a tensor, which the model's configuration fixes."""


_SHAPE = ("num_kv_heads", "head_size", "head_size_v", "dtype", "kv_quant_mode", "block_size")
"""What all layers must have alike."""

_MOVED_BY_LENGTH = ('"longrope"', '"su"', '"llama4')
"""Rotary embeddings, and a kind of model, whose keys vLLM computes otherwise from some ``max_model_len`` on."""

_OWN_MODELS = ("auto", "vllm")
"""What vLLM's ``model_impl`` says where a model is computed by its own code."""

_NOT_THE_MODEL = frozenset({"_name_or_path", "transformers_version"})
"""Keys of a model's configuration that say nothing of its weights or shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """The KV cache of one worker.

    Attributes:
        layout: Of its KV.
        layer_names: As vLLM names them, group after group.
        num_blocks: Blocks in each layer.
        block_tokens: Tokens in a block.
    """

    layout: KVLayout
    layer_names: tuple[str, ...]
    num_blocks: int
    block_tokens: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers, by the layout."""
        return self.layout.bytes_per_token * self.block_tokens

    @property
    def windows(self) -> tuple[int, ...]:
        """Tokens that each group attends to, 0 for all."""
        return tuple(group.window_tokens for group in self.layout.groups)

    @property
    def whole(self) -> bool:
        """Whether a load that falls short is of no use, or vLLM cannot be told of single blocks."""
        return len(self.windows) > 1 or any(self.windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """Which part of which model a worker has.

    Attributes:
        model_name: As vLLM was given it.
        model_type: As the model's own configuration names its kind.
        rank: Among the workers that split the KV.
        world_size: How many these are.
    """

    model_name: str
    model_type: str
    rank: int
    world_size: int


def rank_facts(vllm_config: Any) -> RankFacts:
    """Read the model's name and the worker's rank.

    Raises:
        LayoutError: The workers split the tokens of a request among them.
    """
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise LayoutError(f"vllm: {name} is {getattr(parallel, name)}, which splits a block's tokens; use 1")
    world_size = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    model = vllm_config.model_config
    return RankFacts(
        model_name=model.model,
        model_type=getattr(model.hf_config, "model_type", ""),
        rank=parallel.rank % world_size,
        world_size=world_size,
    )


def no_waiting(vllm_config: Any) -> str:
    """Say why a step must not wait for its loads: what is computed on one that fails could not be taken back.

    Returns:
        What vLLM does, as the end of a sentence; ``""`` where a step may.
    """
    if getattr(getattr(vllm_config, "scheduler_config", None), "async_scheduling", False):
        return "schedules asynchronously"
    if getattr(getattr(vllm_config, "parallel_config", None), "pipeline_parallel_size", 1) > 1:
        return "begins a step before the one before it has ended, as its pipeline needs"
    if getattr(getattr(vllm_config, "cache_config", None), "enable_prefix_caching", False):
        return "lets requests of one step share blocks by its prefix cache"
    return ""


def machine_of(kv_caches: Mapping[str, Any], cpu: str) -> str:
    """Say what of the machine decides how a backend arranges a block; ``""`` where no layer has KV.

    Args:
        kv_caches: The tensor of each layer.
        cpu: What its CPU can do, as torch names it.
    """
    kinds = {tensor.device.type for tensor in kv_caches.values()}
    return "+".join(sorted(f"cpu-{cpu}" if kind == "cpu" else kind for kind in kinds))


def cache_facts(vllm_config: Any, kv_cache_config: Any, kv_caches: Mapping[str, Any], machine: str) -> CacheFacts:
    """Read the layout of a worker's KV cache.

    Args:
        vllm_config: vLLM's.
        kv_cache_config: vLLM's, from before it added layers that share another's KV.
        kv_caches: The tensor of each layer.
        machine: What of the machine decides how the backend arranges a block.

    Raises:
        LayoutError: The KV cannot be cached correctly; says which group or value, and why.
    """
    groups = tuple(_group(place, group) for place, group in enumerate(kv_cache_config.kv_cache_groups))
    if not groups:
        raise LayoutError("vllm: the model has no kv cache, so there is nothing to keep")
    _check_served(groups)
    _check_prefix(vllm_config)
    _check_alike(kv_cache_config.kv_cache_groups)
    spec = _specs(kv_cache_config.kv_cache_groups[0].kv_cache_spec)[0]
    if int(getattr(spec, "kv_quant_mode", 0)) not in _SERVED_QUANTIZATION:
        raise LayoutError(
            f"vllm: kv_cache_dtype {vllm_config.cache_config.cache_dtype!r} keeps scales beside its blocks"
        )
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        raise LayoutError("vllm: calculate_kv_scales makes scales that differ in every process; switch it off")
    names = tuple(name for group in kv_cache_config.kv_cache_groups for name in group.layer_names)
    num_blocks = kv_cache_config.num_blocks
    missing = [name for name in names if name not in kv_caches]
    if missing:
        raise LayoutError(f"vllm: no kv cache tensor was registered for {', '.join(missing)}")
    layout = KVLayout(
        num_layers=len(names),
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        dtype=_dtype(vllm_config, spec),
        use_mla=groups[0].kind == "mla",
        groups=groups,
        format=_format(
            vllm_config,
            {name: kv_caches[name] for name in names},
            machine=machine,
            num_blocks=num_blocks,
            block_tokens=spec.block_size,
            groups=_arranged(kv_cache_config.kv_cache_groups),
        ),
    )
    return CacheFacts(layout=layout, layer_names=names, num_blocks=num_blocks, block_tokens=spec.block_size)


def check_block_bytes(facts: CacheFacts, block_bytes: int) -> None:
    """Refuse a cache whose blocks are not what the layout says, such as padded ones.

    Raises:
        LayoutError: Names both sizes.
    """
    if facts.block_bytes != block_bytes:
        raise LayoutError(
            f"vllm: a block takes {block_bytes} bytes, {facts.block_bytes} by heads, head size and dtype; "
            "this attention backend's blocks are not cached"
        )


def _group(place: int, group: Any) -> KVGroup:
    specs = _specs(group.kv_cache_spec)
    kinds = {_kind(spec) for spec in specs}
    windows = {spec.sliding_window for spec in specs} if kinds == {_WINDOWED} else {0}
    alike = len({_shape(spec) for spec in specs}) == len(windows) == 1
    first = next(iter(group.layer_names), "")
    return KVGroup(
        name=f"{place} ({first}, ...)",
        kind=" and ".join(sorted(kinds)) if alike else "layers of several shapes",
        num_layers=max(1, len(group.layer_names)),
        window_tokens=windows.pop() if alike else 0,
    )


def _kind(spec: Any) -> str:
    if getattr(spec, "non_causal", False):  # what a token's KV is depends on what follows it
        return "non_causal"
    return _KINDS.get(type(spec).__name__) or _snake(type(spec).__name__)


def _check_served(groups: tuple[KVGroup, ...]) -> None:
    layers = sum(group.num_layers for group in groups)
    mla = groups[0].kind == "mla"
    KVLayout(num_layers=layers, num_kv_heads=1, head_size=1, dtype="float32", use_mla=mla, groups=groups)


def _check_prefix(vllm_config: Any) -> None:
    """Refuse where vLLM itself computes nothing behind a prefix, as with MLA on CPUs: the answers would be wrong."""
    scheduler, cache = getattr(vllm_config, "scheduler_config", None), vllm_config.cache_config
    if not getattr(scheduler, "enable_chunked_prefill", True) and not getattr(cache, "enable_prefix_caching", True):
        raise LayoutError(
            "vllm: chunked prefill and prefix caching are both off, as vllm sets them where an attention backend "
            "cannot compute behind a prefix; if that was you, switch one of them on"
        )


def _check_alike(groups: Sequence[Any]) -> None:
    shapes = {_shape(spec) for group in groups for spec in _specs(group.kv_cache_spec)}
    if len(shapes) > 1:
        told = " and ".join(f"({', '.join(one)})" for one in sorted(shapes))
        raise LayoutError(f"vllm: {', '.join(_SHAPE)} of the layers are {told}; a chunk holds layers of one shape only")


def _arranged(groups: Sequence[Any]) -> str:
    """Tell which layers are in which group, counted from the first of this stage; ``""`` for one group."""
    if len(groups) == 1:
        return ""
    places = {name: place for place, group in enumerate(groups) for name in group.layer_names}
    pattern = [places[name] for name in sorted(places, key=_natural)]
    return f"groups-{hashlib.sha256(repr(pattern).encode()).hexdigest()[:8]}"


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _specs(spec: Any) -> list[Any]:
    inner = getattr(spec, "kv_cache_specs", None)  # of UniformTypeKVCacheSpecs
    return list(inner.values()) if inner else [spec]


def _shape(spec: Any) -> tuple[str, ...]:
    return tuple(str(getattr(spec, name, None)) for name in _SHAPE)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Spec")).lower()


def _dtype(vllm_config: Any, spec: Any) -> str:
    configured = str(vllm_config.cache_config.cache_dtype)
    if configured.startswith("fp8"):  # vLLM keeps them as plain bytes
        return "float8_e5m2" if configured.endswith("e5m2") else "float8_e4m3fn"
    return str(spec.dtype).removeprefix("torch.")


def _format(
    vllm_config: Any, tensors: Mapping[str, Any], *, machine: str, num_blocks: int, block_tokens: int, groups: str
) -> str:
    context = vllm_config.compilation_config.static_forward_context
    layers = [context.get(name) for name in tensors]
    backends = {layer.attn_backend.get_name() if layer is not None else "unknown" for layer in layers}
    parts = (
        "vllm",
        "+".join(sorted(backends)),
        "+".join(sorted({str(getattr(layer, "isa", "")) for layer in layers})),
        machine,
        f"block{block_tokens}",
        groups,
        *sorted({_arrangement(tensor, num_blocks) for tensor in tensors.values()}),
        _model_digest(vllm_config),
    )
    return "/".join(part for part in parts if part)


def _arrangement(tensor: Any, num_blocks: int) -> str:
    """Give sizes and strides inside a block; those between blocks or layers depend on how many there are."""
    strides = list(tensor.stride())
    inside = [at for at, size in enumerate(tensor.shape) if size % num_blocks or size < num_blocks]
    return f"{[tensor.shape[at] for at in inside]}{[strides[at] for at in inside if strides[at] < max(strides)]}"


def _model_digest(vllm_config: Any) -> str:
    """Tell apart models of one name: another revision, quantization, rope or draft model must not meet."""
    model, draft = vllm_config.model_config, getattr(vllm_config, "speculative_config", None)
    configuration = model.hf_config.to_dict() if hasattr(model.hf_config, "to_dict") else {}
    configuration = {key: value for key, value in configuration.items() if key not in _NOT_THE_MODEL}
    facts: list[object] = [getattr(model, name, None) for name in ("revision", "quantization", "dtype")]
    facts += [getattr(draft, "model", None), configuration]
    facts += _unusual(vllm_config)
    if any(mark in json.dumps(configuration, default=str) for mark in _MOVED_BY_LENGTH):
        facts.append(getattr(model, "max_model_len", None))
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _unusual(vllm_config: Any) -> list[object]:
    """Give what changes the weights and is in no configuration of the model; empty for what vLLM does unasked."""
    model, load = vllm_config.model_config, getattr(vllm_config, "load_config", None)
    implementation = str(getattr(model, "model_impl", "auto"))
    found = {
        "quantization_config": getattr(model, "quantization_config", None),  # of weights quantized at the start
        "load_format": "dummy" if getattr(load, "load_format", "") == "dummy" else None,  # random weights
        "model_impl": None if implementation in _OWN_MODELS else implementation,
    }
    return [found] if any(found.values()) else []
