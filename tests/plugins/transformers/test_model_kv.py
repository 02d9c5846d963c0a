"""What is found of a model, and what is refused at construction, in a sentence."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import transformers
from tests.memory_store import Rig
from tests.plugins.transformers.models import GROUPED, MAKERS, SMALL, SPECIAL, make

from lmcache_core import KVLayout, LayoutError
from lmcache_plugins.transformers.generation import CachedGeneration

STATE = "whose state cannot be rebuilt from a prefix's chunks; only full, mla, sliding_window are cached, so run this model without lmcache-core"
ROPE = {"rope_theta": 10000.0, "factor": 2.0}

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "sliding windows": (
        "Mistral",
        {**GROUPED, "sliding_window": 16},
        "transformers: MistralForCausalLM has layers with a sliding window, whose cache keeps the KV of the last tokens only, so that it has no whole chunk; call its own generate",
    ),
    "sliding windows beside full attention": (
        "Gemma2",
        {**GROUPED, "head_dim": 8, "sliding_window": 16},
        "transformers: Gemma2ForCausalLM has layers with a sliding window, whose cache keeps the KV of the last tokens only, so that it has no whole chunk; call its own generate",
    ),
    "recurrent state": (
        "Mamba",
        {**SPECIAL, "hidden_size": 32, "num_hidden_layers": 2},
        f"kv layout: group 'LinearAttentionLayer' is of kind 'LinearAttentionLayer', {STATE}",
    ),
    "keys longer than values": (
        "DeepseekV3",
        {
            **SPECIAL, **SMALL, "num_key_value_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
            "kv_lora_rank": 16, "q_lora_rank": 16, "first_k_dense_replace": 2,
        },
        "transformers: DeepseekV3ForCausalLM keeps values of 1 heads of 8 float32 in layer 0 but keys of 1 heads of 16 float32 in layer 0; only equal ones are cached, so call its own generate",
    ),
    "keys that depend on what follows": (
        "Llama",
        {**GROUPED, "rope_parameters": {**ROPE, "rope_type": "dynamic"}},
        "transformers: LlamaForCausalLM has rotary embeddings of type 'dynamic', with which the keys of a prefix depend on what follows it; call its own generate",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_layout_is_what_the_model_really_keeps(name: str) -> None:
    heads, size = {"llama": (2, 8), "qwen2": (2, 8), "gemma": (2, 8)}.get(name, (4, 8))

    layout = CachedGeneration.layout_of(make(name))

    assert layout == KVLayout(num_layers=2, num_kv_heads=heads, head_size=size, dtype="float32")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cached_is_refused(case: str, rig: Rig) -> None:
    name, values, sentence = REFUSED[case]
    config = getattr(transformers, f"{name}Config")(**values)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()

    with pytest.raises(LayoutError) as caught:
        CachedGeneration(model, rig.engine)

    assert str(caught.value) == sentence


def test_encoder_and_decoder() -> None:
    config = transformers.T5Config(
        vocab_size=90, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0
    )

    with pytest.raises(LayoutError) as caught:
        CachedGeneration.layout_of(transformers.T5ForConditionalGeneration(config))

    assert str(caught.value) == (
        "transformers: T5ForConditionalGeneration is an encoder-decoder model, whose KV depends on more than the tokens "
        "before it; call its own generate"
    )


@pytest.mark.parametrize("kind", ["static", "quantized", "offloaded"])
def test_a_model_set_to_another_cache(kind: str) -> None:
    model = make("llama")
    model.generation_config.cache_implementation = kind

    with pytest.raises(LayoutError) as caught:
        CachedGeneration.layout_of(model)

    assert str(caught.value) == (
        f"transformers: LlamaForCausalLM generates with cache_implementation {kind!r}; only its default, DynamicCache, is "
        "filled from the cache, so unset it in the model's generation_config or call its own generate"
    )


def test_a_model_that_takes_no_such_cache() -> None:
    model = make("llama")
    model.forward = lambda input_ids: input_ids

    with pytest.raises(
        LayoutError, match=r"^transformers: LlamaForCausalLM did not take one token with a DynamicCache: "
    ):
        CachedGeneration.layout_of(model)


def test_a_model_that_keeps_nothing() -> None:
    model = make("llama")
    model.forward = lambda **_inputs: None

    with pytest.raises(LayoutError) as caught:
        CachedGeneration.layout_of(model)

    assert str(caught.value) == ("transformers: LlamaForCausalLM keeps no KV in a DynamicCache; call its own generate")


def test_missing_transformers_gives_the_line_that_mends_it() -> None:
    script = "import sys; sys.modules['transformers'] = None; import lmcache_plugins.transformers.generation"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1] == (
        "ImportError: the transformers integration needs 'transformers'; run: pip install 'lmcache-core[transformers]'"
    )


def test_a_model_that_does_not_generate() -> None:
    model = transformers.LlamaModel(transformers.LlamaConfig(**GROUPED))

    with pytest.raises(LayoutError) as caught:
        CachedGeneration.layout_of(model)

    assert str(caught.value) == (
        "transformers: LlamaModel does not generate; take a causal language model, as AutoModelForCausalLM makes"
    )
