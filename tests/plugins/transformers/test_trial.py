"""What no configuration tells of a model: whether the KV of a prefix depends on the prefix alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.memory_store import Rig
from tests.plugins.transformers.models import GROUPED, MAKERS, SMALL, SPECIAL, enlarge, make, padded, prompt
from transformers import (
    BartConfig,
    BartForCausalLM,
    BertConfig,
    BertLMHeadModel,
    GitConfig,
    GitForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    XLMConfig,
    XLMWithLMHeadModel,
)

from lmcache_core import LayoutError
from lmcache_plugins.transformers.generation import CachedGeneration, Served
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT
from lmcache_plugins.transformers.model_kv import examine
from lmcache_plugins.transformers.trial import Trial

NEW = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 89, "eos_token_id": None}
PADDED = "there is padding, and this model's KV depends on it"

DECODER = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}

PADDING_MATTERS = {
    "positions are counted from the first column": lambda: BartForCausalLM(
        BartConfig(**SPECIAL, **DECODER, forced_eos_token_id=None)
    ),
    "the mask does not hide padding": lambda: GitForCausalLM(GitConfig(**SPECIAL, **SMALL, vision_config=VISION)),
}


@pytest.fixture(params=sorted(PADDING_MATTERS))
def counting(request: pytest.FixtureRequest) -> Any:
    """A model whose KV depends on the padding before a row."""
    torch.manual_seed(0)
    return enlarge(PADDING_MATTERS[request.param]())


@pytest.fixture
def counting_cached(counting: Any) -> Iterator[CachedGeneration]:
    rig = Rig(layout=CachedGeneration.layout_of(counting), chunks=200)
    yield CachedGeneration(counting, rig.engine)
    rig.close()


@pytest.mark.parametrize("name", sorted(MAKERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_padding_matters_to_no_usual_model(name: str, dtype: torch.dtype) -> None:
    assert not examine(make(name).to(dtype)).padding_matters


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_matters_to_no_usual_mixture_of_experts(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = enlarge(MixtralForCausalLM(MixtralConfig(**GROUPED, sliding_window=None)))

    assert not examine(model.to(dtype)).padding_matters


def test_padded_rows_do_without_the_cache_where_padding_matters(
    counting: Any, counting_cached: CachedGeneration
) -> None:
    rows = [prompt(22), prompt(31, seed=2)]
    for row in rows:
        counting_cached.generate(row, **NEW)
    batch = padded(*rows)

    answer = counting_cached.generate(**batch, **NEW)

    assert torch.equal(answer, counting.generate(**batch, **NEW))
    assert counting_cached.last == Served(uncached=PADDED)


def test_rows_without_padding_are_served_all_the_same(counting: Any, counting_cached: CachedGeneration) -> None:
    batch = padded(prompt(22), prompt(22, seed=2))

    for _ in range(2):
        assert torch.equal(counting_cached.generate(**batch, **NEW), counting.generate(**batch, **NEW))
    assert counting_cached.last == Served(40, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_reads_in_both_directions_is_refused(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = enlarge(BertLMHeadModel(BertConfig(**SPECIAL, **SMALL)))

    with pytest.raises(LayoutError) as caught:
        examine(model.to(dtype))

    assert str(caught.value) == (
        "transformers: BertLMHeadModel computes the KV of a prefix from what follows it too, as encoders do; "
        "call its own generate"
    )


def test_the_same_model_as_a_decoder_is_served() -> None:
    torch.manual_seed(0)
    model = enlarge(BertLMHeadModel(BertConfig(**SPECIAL, **SMALL, is_decoder=True)))
    rig = Rig(layout=CachedGeneration.layout_of(model), chunks=200)
    cached = CachedGeneration(model, rig.engine)

    for _ in range(2):
        assert torch.equal(cached.generate(prompt(22), **NEW), model.generate(prompt(22), **NEW))
    assert cached.last == Served(20, 0)
    rig.close()


def test_a_model_that_takes_no_prefix_is_refused() -> None:
    model = XLMWithLMHeadModel(XLMConfig(emb_dim=32, n_layers=2, n_heads=4, n_words=90, pad_index=89))

    with pytest.raises(
        LayoutError, match=r"^transformers: XLMWithLMHeadModel did not generate from a prefix in a DynamicCache: "
    ):
        examine(model)


def test_a_model_with_state_beside_its_kv_is_refused(rig: Rig) -> None:
    model = make("llama")
    forward = model.forward

    @functools.wraps(forward)
    def remember(*args: Any, **inputs: Any) -> Any:
        """Favour a token that the columns of this step choose, as a recurrent state would."""
        answer = forward(*args, **inputs)
        answer.logits[..., inputs["input_ids"].sum() % 90] += 30
        return answer

    model.forward = remember

    with pytest.raises(LayoutError) as caught:
        CachedGeneration(model, rig.engine)

    assert str(caught.value) == (
        "transformers: LlamaForCausalLM generates something else from the KV of a prefix than from the prefix, as with "
        "state beside its KV; call its own generate"
    )


def test_a_trial_leaves_each_module_its_mode() -> None:
    model = make("llama").train()
    model.model.layers[1].eval()

    examine(model)

    assert (model.training, model.model.layers[0].training, model.model.layers[1].training) == (True, True, False)


def test_a_trial_heeds_no_generation_config_and_draws_no_random_number() -> None:
    model = make("llama")
    model.generation_config.update(
        do_sample=True,
        num_beams=2,
        num_return_sequences=2,
        prefill_chunk_size=3,
        stop_strings=["x"],
        token_healing=True,
    )
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)

    assert not examine(model).padding_matters
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    "mode",
    [{"prompt_lookup_num_tokens": 3}, {"penalty_alpha": 0.6, "top_k": 4}, {"dola_layers": "high"}, {"max_length": 3}],
)
def test_a_model_whose_own_way_to_generate_is_another_is_served_where_a_call_says_so(
    rig: Rig, mode: dict[str, Any]
) -> None:
    model = make("llama")
    model.generation_config.update(**mode)
    cached = CachedGeneration(model, rig.engine)
    usual = {**NEW, **dict.fromkeys(mode)}

    for _ in range(2):
        assert torch.equal(cached.generate(prompt(22), **usual), model.generate(prompt(22), **usual))
    assert cached.last == Served(20, 0)


def test_a_model_that_reads_in_both_directions_only_where_there_is_no_padding_is_refused() -> None:
    model = make("llama")
    forward = model.forward

    @functools.wraps(forward)
    def look_ahead(*args: Any, **inputs: Any) -> Any:
        mask = inputs.get("attention_mask")
        if (mask is None or bool(mask.all())) and not inputs[CACHE_ARGUMENT].get_seq_length():
            inputs["input_ids"] = inputs["input_ids"].flip(1)
        return forward(*args, **inputs)

    model.forward = look_ahead

    with pytest.raises(
        LayoutError, match=r"^transformers: LlamaForCausalLM computes the KV of a prefix from what follows it too, "
    ):
        examine(model)


def test_a_model_is_tried_once_for_its_layout_and_its_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tried = make("llama"), []
    own = Trial.padding_matters
    monkeypatch.setattr(Trial, "padding_matters", lambda trial: tried.append(trial) or own(trial))

    rig = Rig(layout=CachedGeneration.layout_of(model), chunks=50)
    CachedGeneration(model, rig.engine)

    assert len(tried) == 1
    rig.close()


def test_a_model_that_changed_since_its_layout_was_asked_for_is_tried_as_it_is_now() -> None:
    model = make("llama")
    rig = Rig(layout=CachedGeneration.layout_of(model), chunks=50)
    forward = model.forward

    @functools.wraps(forward)
    def look_ahead(*args: Any, **inputs: Any) -> Any:
        inputs["input_ids"] = inputs["input_ids"].flip(1)
        return forward(*args, **inputs)

    model.forward = look_ahead

    with pytest.raises(LayoutError, match="computes the KV of a prefix from what follows it too"):
        CachedGeneration(model, rig.engine)
    rig.close()
