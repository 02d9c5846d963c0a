"""Every argument of generate goes through, and what comes back is what generate gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.plugins.transformers.models import END, PAD, padded, prompt
from transformers import GenerationConfig, LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList

from lmcache_plugins.transformers.generation import CachedGeneration, Served

TOKENS = prompt(22)


class Listener:
    """A streamer that writes down."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.told.append(value.tolist())

    def end(self) -> None:
        self.told.append("end")


def ban_even(_tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    scores[:, ::2] = float("-inf")
    return scores


OPTIONS = {
    "max_length": {"max_length": 30},
    "default length": {},
    "generation_config": {"generation_config": GenerationConfig(max_new_tokens=6, eos_token_id=END, pad_token_id=PAD)},
    "sampling": {"do_sample": True, "temperature": 2.0, "top_k": 20, "max_new_tokens": 12},
    "beams": {"num_beams": 3, "max_new_tokens": 8},
    "beams, all returned": {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 8, "length_penalty": 2.0},
    "sampled beams": {"num_beams": 2, "do_sample": True, "max_new_tokens": 8},
    "several answers": {"do_sample": True, "num_return_sequences": 4, "max_new_tokens": 8},
    "repetition": {"repetition_penalty": 5.0, "no_repeat_ngram_size": 2, "max_new_tokens": 12},
    "own processor": {"logits_processor": LogitsProcessorList([ban_even]), "max_new_tokens": 12},
    "own criterion": {"stopping_criteria": StoppingCriteriaList([MaxLengthCriteria(25)])},
    "allowed tokens": {"prefix_allowed_tokens_fn": lambda _row, _tokens: [3, 5, 7], "max_new_tokens": 6},
    "guidance": {"guidance_scale": 1.5, "negative_prompt_ids": prompt(5, seed=9), "max_new_tokens": 6},
    "slices": {"prefill_chunk_size": 7, "max_new_tokens": 6},
    "the default cache by its name": {"cache_implementation": "dynamic", "max_new_tokens": 6},
    "the default cache by its name, in a generation_config": {
        "generation_config": GenerationConfig(
            cache_implementation="dynamic", max_new_tokens=6, eos_token_id=END, pad_token_id=PAD
        )
    },
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.filterwarnings("ignore:Using the model-agnostic default `max_length`:UserWarning")
def test_same_answer_cold_and_warm(model: Any, cached: CachedGeneration, name: str, rows: int) -> None:
    options = OPTIONS[name]
    if rows == 2 and name == "guidance":
        options = {**options, "negative_prompt_ids": prompt(5, seed=9).repeat(2, 1)}
    inputs = {"input_ids": TOKENS} if rows == 1 else padded(TOKENS, prompt(19, seed=2))
    torch.manual_seed(3)
    expected = model.generate(**inputs, **options)

    for _ in range(2):
        torch.manual_seed(3)
        assert torch.equal(cached.generate(**inputs, **options), expected)
    assert cached.last.reused_tokens >= (14 if rows == 1 else 10)
    assert cached.uncached == {}


def test_positional_arguments(model: Any, cached: CachedGeneration) -> None:
    config = GenerationConfig(max_new_tokens=6, eos_token_id=END, pad_token_id=PAD)

    for _ in range(2):
        answer = cached.generate(TOKENS, config)

        assert torch.equal(answer, model.generate(TOKENS, config))
    assert cached.last == Served(20, 0)


def test_everything_generate_returns(model: Any, cached: CachedGeneration) -> None:
    options = {"max_new_tokens": 6, "return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    expected = model.generate(TOKENS, **options)
    cached.generate(TOKENS, **options)

    answer = cached.generate(TOKENS, **options)

    assert type(answer) is type(expected)
    assert torch.equal(answer.sequences, expected.sequences)
    assert [tuple(score.shape) for score in answer.scores] == [tuple(score.shape) for score in expected.scores]
    assert all(
        torch.allclose(ours, theirs, atol=1e-4) for ours, theirs in zip(answer.logits, expected.logits, strict=True)
    )


def test_inference_mode(model: Any, cached: CachedGeneration) -> None:
    with torch.inference_mode():
        answers = [cached.generate(TOKENS, max_new_tokens=6) for _ in range(2)]

    assert all(torch.equal(answer, model.generate(TOKENS, max_new_tokens=6)) for answer in answers)
    assert cached.last == Served(20, 0)


def test_streaming(model: Any, cached: CachedGeneration) -> None:
    expected, listener = Listener(), Listener()
    model.generate(TOKENS, streamer=expected, max_new_tokens=6)
    cached.generate(TOKENS, max_new_tokens=6)

    cached.generate(TOKENS, streamer=listener, max_new_tokens=6)

    assert listener.told == expected.told
    assert cached.last == Served(20, 0)


def test_a_row_that_ends_early_is_padded_as_ever(model: Any, cached: CachedGeneration) -> None:
    batch = padded(TOKENS, prompt(19, seed=2))
    first = model.generate(**batch, max_new_tokens=12, do_sample=False)
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": [int(first[0, 24]), END]}
    expected = model.generate(**batch, **options)

    answers = [cached.generate(**batch, **options) for _ in range(2)]

    assert PAD in expected[0].tolist()
    assert all(torch.equal(answer, expected) for answer in answers)


def test_a_wrong_argument_is_generates_own_error(cached: CachedGeneration) -> None:
    with pytest.raises(ValueError, match="max_new_tokenz"):
        cached.generate(TOKENS, max_new_tokenz=6)


def test_an_error_in_the_middle_is_the_callers(cached: CachedGeneration) -> None:
    class StopError(Exception):
        pass

    def stop(tokens: torch.Tensor, _scores: Any) -> torch.Tensor:
        if tokens.shape[1] > 24:
            raise StopError
        return torch.zeros(len(tokens), dtype=torch.bool)

    cached.generate(TOKENS, max_new_tokens=6)
    with pytest.raises(StopError):
        cached.generate(TOKENS, max_new_tokens=6, stopping_criteria=StoppingCriteriaList([stop]))
    assert cached.uncached == {}
