"""What the cache cannot serve goes to the model's own generate, is counted, and is said once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from tests.memory_store import Rig
from tests.plugins.transformers.models import END, PAD, make, prompt

from lmcache_plugins.transformers.generation import CachedGeneration, Served
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT

TOKENS = prompt(22)
NEW = {"max_new_tokens": 5, "do_sample": False}
HOLE = torch.ones_like(TOKENS)
HOLE[0, 7] = 0


def with_pads() -> torch.Tensor:
    tokens = TOKENS.clone()
    tokens[0, 4] = PAD
    return tokens


CALLS = {
    "generate was given inputs_embeds": lambda model: {
        "inputs_embeds": model.get_input_embeddings()(TOKENS),
        "attention_mask": torch.ones_like(TOKENS),
    },
    "generate was given position_ids": lambda _model: {"inputs": TOKENS, "position_ids": torch.arange(22)[None]},
    "generate was given output_hidden_states": lambda _model: {
        "inputs": TOKENS,
        "output_hidden_states": True,
        "return_dict_in_generate": True,
    },
    "use_cache is off": lambda _model: {"inputs": TOKENS, "use_cache": False},
    "cache_implementation is 'static'": lambda _model: {"inputs": TOKENS, "cache_implementation": "static"},
    "generation mode 'assisted_generation'": lambda _model: {"inputs": TOKENS, "prompt_lookup_num_tokens": 3},
    "the attention_mask hides more than padding on the left": lambda _model: {"inputs": TOKENS, "attention_mask": HOLE},
    "there are pad tokens in the prompt and no attention_mask": lambda _model: {"inputs": with_pads()},
    "the attention_mask is not one of zeros and ones for each token of the prompt": lambda _model: {
        "inputs": TOKENS,
        "attention_mask": torch.ones(1, 30),
    },
    "the prompt is not a tensor of token ids, [rows, tokens]": lambda _model: {},
}


def sequences(answer: Any) -> torch.Tensor:
    found: torch.Tensor = answer if isinstance(answer, torch.Tensor) else answer.sequences
    return found


@pytest.mark.parametrize("reason", CALLS)
def test_each_call_is_generates_own(model: Any, cached: CachedGeneration, reason: str) -> None:
    cached.generate(TOKENS, **NEW)
    arguments = CALLS[reason](model)
    expected = model.generate(**CALLS[reason](model), **NEW)

    answer = cached.generate(**arguments, **NEW)

    assert torch.equal(sequences(answer), sequences(expected))
    assert cached.uncached == {reason: 1}
    assert cached.last == Served(uncached=reason)


def test_a_cache_of_the_callers_own_is_left_alone(model: Any, cached: CachedGeneration) -> None:
    from transformers import DynamicCache

    own = DynamicCache()

    cached.generate(TOKENS, **{CACHE_ARGUMENT: own}, **NEW)

    assert own.get_seq_length() == 26
    assert cached.uncached == {f"generate was given {CACHE_ARGUMENT}": 1}


def test_pad_tokens_that_also_end_answers_are_plain_tokens(model: Any, cached: CachedGeneration) -> None:
    options = {**NEW, "eos_token_id": [END, PAD]}

    for _ in range(2):
        assert torch.equal(cached.generate(with_pads(), **options), model.generate(with_pads(), **options))
    assert cached.last == Served(20, 0)


def test_a_reason_is_counted_each_time_and_said_once(
    cached: CachedGeneration, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lmcache_plugins.transformers"):
        for _ in range(3):
            cached.generate(TOKENS, use_cache=False, **NEW)

    assert cached.uncached == {"use_cache is off": 3}
    assert [record.getMessage() for record in caplog.records if "lmcache" in record.name] == [
        "a call to generate did without the cache: use_cache is off (each reason is said once)"
    ]


@pytest.fixture
def own_model() -> Any:
    """A model that a test may change."""
    return make("llama")


@pytest.fixture
def own_cached(own_model: Any, rig: Rig) -> CachedGeneration:
    return CachedGeneration(own_model, rig.engine)


def test_training_mode(own_model: Any, own_cached: CachedGeneration) -> None:
    own_model.train()

    own_cached.generate(TOKENS, **NEW)

    assert own_cached.uncached == {"the model is in training mode": 1}


def test_a_model_converted_later(own_model: Any, own_cached: CachedGeneration) -> None:
    own_model.to(torch.bfloat16)

    own_cached.generate(TOKENS, **NEW)

    assert own_cached.uncached == {"the model has been moved or converted since CachedGeneration was made": 1}


def test_autocast(own_cached: CachedGeneration) -> None:
    with torch.autocast("cpu"):
        own_cached.generate(TOKENS, **NEW)

    assert own_cached.uncached == {"autocast is on": 1}


def test_an_adapter_needs_a_variant(own_model: Any, own_cached: CachedGeneration) -> None:
    own_model.peft_config = {"default": object()}

    own_cached.generate(TOKENS, **NEW)
    own_cached.generate(TOKENS, variant="lora-1", **NEW)

    assert own_cached.uncached == {"a PEFT adapter is loaded and no variant is given to tell its KV apart": 1}
    assert own_cached.last == Served(0, 20)
