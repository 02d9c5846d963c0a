from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lmcache_core import LayoutError
from lmcache_plugins.vllm.facts import cache_facts, check_block_bytes, machine_of, no_waiting, rank_facts

BLOCKS = 7


@dataclass
class FullAttentionSpec:
    block_size: int = 32
    num_kv_heads: int = 3
    head_size: int = 64
    dtype: Any = torch.float32
    kv_quant_mode: int = 0
    non_causal: bool = False


class MLAAttentionSpec(FullAttentionSpec):
    pass


@dataclass
class SlidingWindowSpec(FullAttentionSpec):
    sliding_window: int = 80


class MambaSpec(FullAttentionSpec):
    pass


class SomeNewSpec(FullAttentionSpec):
    pass


@dataclass
class UniformTypeKVCacheSpecs:
    kv_cache_specs: dict[str, Any] = field(default_factory=dict)


def tensors(*names: str, shape: tuple[int, ...] = (BLOCKS, 3, 32, 128)) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(shape) for name in names}


def vllm_config(**parallel: int) -> Any:
    backend = SimpleNamespace(get_name=lambda: "CPU_ATTN")
    layer = SimpleNamespace(attn_backend=backend, isa="vec")
    sizes = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "rank": 0, **parallel}
    return SimpleNamespace(
        cache_config=SimpleNamespace(cache_dtype="auto"),
        compilation_config=SimpleNamespace(static_forward_context={"a": layer, "b": layer}),
        parallel_config=SimpleNamespace(**sizes),
        model_config=SimpleNamespace(
            model="smol",
            revision=None,
            quantization=None,
            hf_config=SimpleNamespace(model_type="llama", to_dict=lambda: {"rope_theta": 1e5, "_name_or_path": "x"}),
        ),
    )


def groups(*specs: Any) -> Any:
    names = [["a", "b"], ["c"], ["d"]]
    made = [SimpleNamespace(layer_names=names[at], kv_cache_spec=spec) for at, spec in enumerate(specs)]
    return SimpleNamespace(num_blocks=BLOCKS, kv_cache_groups=made)


def facts_of(*specs: Any, config: Any = None, kv_caches: Any = None, machine: str = "cpu-AVX2") -> Any:
    return cache_facts(config or vllm_config(), groups(*specs), kv_caches or tensors("a", "b"), machine)


def refusal(*specs: Any, **options: Any) -> str:
    with pytest.raises(LayoutError) as caught:
        facts_of(*specs, **options)
    return str(caught.value)


def test_full_attention_is_served() -> None:
    facts = facts_of(FullAttentionSpec())
    layout = facts.layout
    assert (layout.num_layers, layout.num_kv_heads, layout.head_size, layout.dtype) == (2, 3, 64, "float32")
    assert (facts.layer_names, facts.num_blocks, facts.block_tokens) == (("a", "b"), BLOCKS, 32)


def test_the_format_names_backend_isa_machine_block_size_and_arrangement() -> None:
    parts = facts_of(FullAttentionSpec()).layout.format.split("/")
    assert parts[:-1] == ["vllm", "CPU_ATTN", "vec", "cpu-AVX2", "block32", "[3, 32, 128][4096, 128, 1]"]
    assert len(parts[-1]) == 16


def test_the_number_of_blocks_is_not_in_the_format() -> None:
    few = facts_of(FullAttentionSpec()).layout
    many = cache_facts(
        vllm_config(),
        SimpleNamespace(num_blocks=9, kv_cache_groups=groups(FullAttentionSpec()).kv_cache_groups),
        tensors("a", "b", shape=(9, 3, 32, 128)),
        "cpu-AVX2",
    ).layout
    assert few == many


@pytest.mark.parametrize(
    "other",
    [
        {"machine": "cpu-AVX512"},
        {"kv_caches": {name: torch.zeros(BLOCKS, 32, 3, 128).transpose(1, 2) for name in "ab"}},
    ],
)
def test_another_machine_or_arrangement_is_another_format(other: Any) -> None:
    one, two = facts_of(FullAttentionSpec()), facts_of(FullAttentionSpec(), **other)
    assert one.layout.fingerprint != two.layout.fingerprint


def test_the_cpu_is_named_and_a_gpu_by_its_kind() -> None:
    assert machine_of(tensors("a", "b"), "AVX2") == "cpu-AVX2"
    assert machine_of({"a": torch.zeros(1, device="meta")}, "AVX2") == "meta"


def test_an_encoder_without_kv_is_refused_in_a_sentence() -> None:
    """Such as BERT: vLLM registers no tensor at all."""
    with pytest.raises(LayoutError) as caught:
        cache_facts(vllm_config(), groups(), {}, machine_of({}, "AVX2"))
    assert str(caught.value) == "vllm: the model has no kv cache, so there is nothing to keep"


def test_another_configuration_of_the_model_is_another_format() -> None:
    config = vllm_config()
    config.model_config.revision = "v2"
    assert facts_of(FullAttentionSpec()).layout != facts_of(FullAttentionSpec(), config=config).layout


def fingerprint(configuration: dict[str, Any], **model: Any) -> str:
    config = vllm_config()
    config.model_config.hf_config.to_dict = lambda: configuration
    for name, value in model.items():
        setattr(config.model_config, name, value)
    found: str = facts_of(FullAttentionSpec(), config=config).layout.fingerprint
    return found


def test_the_greatest_length_is_not_in_the_format() -> None:
    assert fingerprint({}, max_model_len=4096) == fingerprint({}, max_model_len=8192)


@pytest.mark.parametrize(
    "configuration",
    [
        {"rope_scaling": {"rope_type": "longrope"}},
        {"rope_parameters": {"full_attention": {"type": "su"}}},
        {"text_config": {"model_type": "llama4_text"}},
    ],
)
def test_the_greatest_length_is_in_the_format_where_it_moves_the_keys(configuration: dict[str, Any]) -> None:
    assert fingerprint(configuration, max_model_len=4096) != fingerprint(configuration, max_model_len=8192)


def test_another_dtype_of_the_model_is_another_format() -> None:
    assert fingerprint({}, dtype=torch.float16) != fingerprint({}, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "other",
    [
        {"quantization": "fp8"},
        {"quantization_config": {"linear": "int8_per_channel_weight_only"}},
        {"model_impl": "transformers"},
    ],
)
def test_weights_that_are_made_otherwise_are_another_format(other: dict[str, Any]) -> None:
    assert fingerprint({}, **other) != fingerprint({})


def test_two_ways_to_quantize_at_the_start_are_two_formats() -> None:
    one, two = ({"ignore": [name]} for name in ("lm_head", "q_proj"))
    assert fingerprint({}, quantization_config=one) != fingerprint({}, quantization_config=two)


def test_random_weights_are_another_format() -> None:
    config = vllm_config()
    config.load_config = SimpleNamespace(load_format="dummy")
    assert facts_of(FullAttentionSpec()).layout != facts_of(FullAttentionSpec(), config=config).layout


@pytest.mark.parametrize("load_format", ["auto", "safetensors", "runai_streamer"])
def test_how_the_same_weights_are_read_is_not_in_the_format(load_format: str) -> None:
    config = vllm_config()
    config.load_config = SimpleNamespace(load_format=load_format)
    config.model_config.model_impl = "auto"
    config.model_config.quantization_config = None
    assert facts_of(FullAttentionSpec()).layout == facts_of(FullAttentionSpec(), config=config).layout


def test_another_draft_model_is_another_format() -> None:
    config = vllm_config()
    config.speculative_config = SimpleNamespace(model="draft")
    assert facts_of(FullAttentionSpec()).layout != facts_of(FullAttentionSpec(), config=config).layout


def test_mla_is_served() -> None:
    spec = MLAAttentionSpec(num_kv_heads=1, head_size=576)
    layout = facts_of(spec, kv_caches=tensors("a", "b", shape=(BLOCKS, 32, 576))).layout
    assert (layout.use_mla, layout.bytes_per_token) == (True, 2 * 576 * 4)


def test_layers_of_one_kind_are_served_together() -> None:
    spec = UniformTypeKVCacheSpecs({"a": FullAttentionSpec(), "b": FullAttentionSpec()})
    assert facts_of(spec).layout.num_layers == 2


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (MambaSpec(), "mamba"),
        (FullAttentionSpec(non_causal=True), "non_causal"),
        (SomeNewSpec(), "some_new"),
        (UniformTypeKVCacheSpecs({"a": FullAttentionSpec(), "b": MambaSpec()}), "full and mamba"),
        (
            UniformTypeKVCacheSpecs({"a": FullAttentionSpec(), "b": FullAttentionSpec(head_size=32)}),
            "layers of several shapes",
        ),
        (
            UniformTypeKVCacheSpecs({"a": SlidingWindowSpec(), "b": SlidingWindowSpec(sliding_window=96)}),
            "layers of several shapes",
        ),
    ],
)
def test_any_other_kind_is_refused_by_name(spec: Any, kind: str) -> None:
    assert refusal(spec).startswith(f"kv layout: group '0 (a, ...)' is of kind {kind!r}, whose state cannot be rebuilt")


def test_a_hybrid_model_with_a_state_is_refused_by_its_group() -> None:
    assert refusal(FullAttentionSpec(), MambaSpec()).startswith("kv layout: group '1 (c, ...)' is of kind 'mamba'")


def test_windowed_layers_are_served() -> None:
    facts = facts_of(SlidingWindowSpec())
    assert (facts.windows, facts.layout.num_layers) == ((80,), 2)


def test_a_hybrid_model_is_served_with_all_its_layers() -> None:
    facts = facts_of(SlidingWindowSpec(), FullAttentionSpec(), kv_caches=tensors("a", "b", "c"))
    assert (facts.layer_names, facts.windows) == (("a", "b", "c"), (80, 0))
    assert [group.num_layers for group in facts.layout.groups] == [2, 1]


def test_layers_that_are_grouped_otherwise_are_another_format() -> None:
    def format_of(*names: list[str]) -> str:
        specs = (SlidingWindowSpec(), FullAttentionSpec())
        made = [SimpleNamespace(layer_names=some, kv_cache_spec=spec) for some, spec in zip(names, specs, strict=True)]
        config = SimpleNamespace(num_blocks=BLOCKS, kv_cache_groups=made)
        layers = ("l.2", "l.9", "l.10", "l.11")
        facts = cache_facts(vllm_config(), config, tensors(*layers), "cpu")
        found: str = facts.layout.format
        return found

    one = format_of(["l.2", "l.10"], ["l.9", "l.11"])
    assert "/groups-" in one
    assert one == format_of(["l.10", "l.2"], ["l.11", "l.9"])
    assert one != format_of(["l.2", "l.9"], ["l.10", "l.11"])


def test_a_hybrid_model_of_several_shapes_is_refused() -> None:
    assert refusal(SlidingWindowSpec(head_size=32), FullAttentionSpec()) == (
        "vllm: num_kv_heads, head_size, head_size_v, dtype, kv_quant_mode, block_size of the layers are "
        "(3, 32, None, torch.float32, 0, 32) and (3, 64, None, torch.float32, 0, 32); "
        "a chunk holds layers of one shape only"
    )


def test_a_backend_that_computes_nothing_behind_a_prefix_is_refused() -> None:
    config = vllm_config()
    config.cache_config.enable_prefix_caching = False
    config.scheduler_config = SimpleNamespace(enable_chunked_prefill=False)
    assert refusal(FullAttentionSpec(), config=config) == (
        "vllm: chunked prefill and prefix caching are both off, as vllm sets them where an attention backend cannot "
        "compute behind a prefix; if that was you, switch one of them on"
    )


@pytest.mark.parametrize(("prefix", "chunked"), [(True, False), (False, True)])
def test_one_of_both_shows_that_it_does(prefix: bool, chunked: bool) -> None:
    config = vllm_config()
    config.cache_config.enable_prefix_caching = prefix
    config.scheduler_config = SimpleNamespace(enable_chunked_prefill=chunked)
    assert facts_of(FullAttentionSpec(), config=config).layout.num_layers == 2


def test_a_model_without_kv_is_refused() -> None:
    assert refusal() == "vllm: the model has no kv cache, so there is nothing to keep"


def test_scales_beside_the_blocks_are_refused() -> None:
    assert refusal(FullAttentionSpec(kv_quant_mode=3)) == ("vllm: kv_cache_dtype 'auto' keeps scales beside its blocks")


def test_a_layer_without_a_tensor_is_refused() -> None:
    assert refusal(FullAttentionSpec(), kv_caches=tensors("a")) == "vllm: no kv cache tensor was registered for b"


def test_fp8_is_named_by_the_configuration() -> None:
    config = vllm_config()
    config.cache_config.cache_dtype = "fp8_e5m2"
    spec = FullAttentionSpec(dtype=torch.uint8, kv_quant_mode=1)
    assert facts_of(spec, config=config).layout.dtype == "float8_e5m2"


def test_padded_blocks_are_refused() -> None:
    facts = facts_of(FullAttentionSpec())
    with pytest.raises(LayoutError) as caught:
        check_block_bytes(facts, 100_000)
    assert str(caught.value) == (
        "vllm: a block takes 100000 bytes, 98304 by heads, head size and dtype; "
        "this attention backend's blocks are not cached"
    )


def test_the_rank_is_that_within_the_model() -> None:
    facts = rank_facts(vllm_config(tensor_parallel_size=2, pipeline_parallel_size=2, rank=6))
    assert (facts.model_name, facts.model_type, facts.rank, facts.world_size) == ("smol", "llama", 2, 4)


def test_tokens_split_among_workers_are_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        rank_facts(vllm_config(decode_context_parallel_size=2))
    assert str(caught.value) == "vllm: decode_context_parallel_size is 2, which splits a block's tokens; use 1"


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({}, ""),
        ({"scheduler_config": SimpleNamespace(async_scheduling=True)}, "schedules asynchronously"),
        (
            {"parallel_config": SimpleNamespace(pipeline_parallel_size=2)},
            "begins a step before the one before it has ended, as its pipeline needs",
        ),
        (
            {"cache_config": SimpleNamespace(enable_prefix_caching=True)},
            "lets requests of one step share blocks by its prefix cache",
        ),
    ],
)
def test_a_step_waits_for_no_load_where_vllm_could_not_take_it_back(config: dict[str, Any], cause: str) -> None:
    assert no_waiting(SimpleNamespace(**config)) == cause
