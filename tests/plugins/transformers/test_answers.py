"""Answers are those of the model's own generate, token for token, whatever the cache had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.memory_store import Rig
from tests.plugins.transformers.models import MAKERS, make, padded, prompt

from lmcache_plugins.transformers.generation import CachedGeneration, Served

NEW = {"max_new_tokens": 12, "do_sample": False}


@pytest.fixture(scope="module", params=sorted(MAKERS))
def each_model(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


@pytest.fixture
def each_cached(each_model: Any) -> Iterator[CachedGeneration]:
    rig = Rig(layout=CachedGeneration.layout_of(each_model), chunks=200)
    yield CachedGeneration(each_model, rig.engine)
    rig.close()


def test_cold_then_warm(each_model: Any, each_cached: CachedGeneration) -> None:
    tokens = prompt(22)
    expected = each_model.generate(tokens, **NEW)

    answers, served = [], []
    for _ in range(2):
        answers.append(each_cached.generate(tokens, **NEW))
        served.append(each_cached.last)

    assert all(torch.equal(answer, expected) for answer in answers)
    assert served == [Served(0, 20), Served(20, 0)]


def test_the_model_computes_only_what_is_not_known(model: Any, cached: CachedGeneration) -> None:
    cached.generate(prompt(22), **NEW)
    widths: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _model, _args, inputs: widths.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )

    cached.generate(prompt(22), max_new_tokens=3, do_sample=False)

    hook.remove()
    assert widths == [2, 1, 1]


def test_partial_hit(each_model: Any, each_cached: CachedGeneration) -> None:
    first, second = prompt(22), prompt(30, seed=2)
    second[:, :13] = first[:, :13]
    each_cached.generate(first, **NEW)

    answer = each_cached.generate(second, **NEW)

    assert torch.equal(answer, each_model.generate(second, **NEW))
    assert each_cached.last == Served(12, 28 - 12)


def test_padded_batch_of_known_and_longer_prompts(each_model: Any, each_cached: CachedGeneration) -> None:
    rows = [prompt(22), prompt(30, seed=2), prompt(9, seed=3)]
    for row in rows:
        each_cached.generate(row[:, :-2], **NEW)
    batch = padded(*rows)
    expected = each_model.generate(**batch, **NEW)

    answer = each_cached.generate(**batch, **NEW)

    assert torch.equal(answer, expected)
    assert each_cached.last == Served(reused_tokens=(25 - 8) + 25 + (25 - 21), stored_tokens=4)


def test_cold_padded_batch_is_kept_row_by_row(each_model: Any, each_cached: CachedGeneration) -> None:
    rows = [prompt(22), prompt(30, seed=2), prompt(9, seed=3)]
    batch = padded(*rows)

    answer = each_cached.generate(**batch, **NEW)
    kept = each_cached.last
    single = each_cached.generate(rows[0], **NEW)

    assert torch.equal(answer, each_model.generate(**batch, **NEW))
    assert torch.equal(single, each_model.generate(rows[0], **NEW))
    assert (kept, each_cached.last) == (Served(0, 20 + 28 + 8), Served(20, 0))


def test_the_row_that_knows_least_decides(model: Any, cached: CachedGeneration) -> None:
    known, unknown = prompt(22), prompt(24, seed=2)
    cached.generate(known, **NEW)
    batch = padded(known, unknown)

    answer = cached.generate(**batch, **NEW)

    assert torch.equal(answer, model.generate(**batch, **NEW))
    assert cached.last == Served(0, 24)


def test_padding_is_no_hindrance_to_a_longer_known_row(model: Any, cached: CachedGeneration) -> None:
    long, short = prompt(40), prompt(6, seed=2)
    cached.generate(long, **NEW)
    batch = padded(long, short)

    answer = cached.generate(**batch, **NEW)

    assert torch.equal(answer, model.generate(**batch, **NEW))
    assert cached.last == Served(34, 4)


def test_one_prompt_twice_in_a_batch(model: Any, cached: CachedGeneration) -> None:
    batch = padded(prompt(22), prompt(22))
    cached.generate(prompt(22), **NEW)

    answer = cached.generate(**batch, **NEW)

    assert torch.equal(answer, model.generate(**batch, **NEW))
    assert cached.last == Served(40, 0)


def test_a_prompt_of_whole_chunks_leaves_its_last_token_to_compute(model: Any, cached: CachedGeneration) -> None:
    tokens = prompt(20)
    cached.generate(tokens, **NEW)

    answer = cached.generate(tokens, **NEW)

    assert torch.equal(answer, model.generate(tokens, **NEW))
    assert cached.last == Served(19, 0)


@pytest.mark.parametrize("tokens", [1, 3, 4])
def test_prompts_of_a_chunk_and_less(model: Any, cached: CachedGeneration, tokens: int) -> None:
    for _ in range(2):
        answer = cached.generate(prompt(tokens), **NEW)

        assert torch.equal(answer, model.generate(prompt(tokens), **NEW))


def test_scores_are_bit_for_bit_equal_with_a_prefill_in_slices(model: Any, cached: CachedGeneration) -> None:
    options = {**NEW, "prefill_chunk_size": 4, "output_logits": True, "return_dict_in_generate": True}
    tokens = prompt(30)
    expected = model.generate(tokens, **options)
    cached.generate(tokens, **options)

    answer = cached.generate(tokens, **options)

    assert all(torch.equal(ours, theirs) for ours, theirs in zip(answer.logits, expected.logits, strict=True))
    assert cached.last == Served(28, 0)


def test_the_answer_is_known_in_the_next_turn_if_wanted(model: Any, rig: Rig) -> None:
    cached = CachedGeneration(model, rig.engine, store_generated=True)
    first = cached.generate(prompt(22), **NEW, eos_token_id=None)
    after_first = cached.last
    turn = torch.cat([first, prompt(5, seed=2)], dim=1)

    answer = cached.generate(turn, **NEW)

    assert torch.equal(answer, model.generate(turn, **NEW))
    assert (after_first, cached.last.reused_tokens) == (Served(0, 32), 32)


def test_two_tenants_and_two_variants_never_meet(model: Any, cached: CachedGeneration) -> None:
    served = []
    for owner in ({}, {"salt": "a"}, {"salt": "b"}, {"variant": "a"}, {"salt": "a", "variant": "a"}, {"salt": "a"}):
        cached.generate(prompt(22), **NEW, **owner)
        served.append(cached.last.reused_tokens)

    assert served == [0, 0, 0, 0, 0, 20]


def test_bfloat16_prefixes_go_through_the_cache(model: Any) -> None:
    small = make("llama").to(torch.bfloat16)
    rig = Rig(layout=CachedGeneration.layout_of(small), chunks=50)
    cached = CachedGeneration(small, rig.engine)
    options = {**NEW, "prefill_chunk_size": 4}

    answers = [cached.generate(prompt(22), **options) for _ in range(2)]

    assert all(torch.equal(answer, small.generate(prompt(22), **options)) for answer in answers)
    assert cached.last == Served(20, 0)
    rig.close()


@pytest.fixture
def whole(each_model: Any) -> Iterator[CachedGeneration]:
    """A cache that keeps the rest of a prompt."""
    rig = Rig(layout=CachedGeneration.layout_of(each_model), chunks=200, save_unfull_chunk=True)
    yield CachedGeneration(each_model, rig.engine)
    rig.close()


def test_a_prompt_that_is_kept_whole_leaves_its_last_token_to_compute(each_model: Any, whole: CachedGeneration) -> None:
    tokens = prompt(22)
    expected = each_model.generate(tokens, **NEW)

    answers, served = [], []
    for _ in range(2):
        answers.append(whole.generate(tokens, **NEW))
        served.append(whole.last)

    assert all(torch.equal(answer, expected) for answer in answers)
    assert served == [Served(0, 22), Served(21, 0)]


def test_a_padded_batch_of_prompts_that_are_kept_whole(each_model: Any, whole: CachedGeneration) -> None:
    batch = padded(prompt(22), prompt(7, seed=2))
    expected = each_model.generate(**batch, **NEW)

    answers = [whole.generate(**batch, **NEW) for _ in range(2)]

    assert all(torch.equal(answer, expected) for answer in answers)
    assert whole.last == Served(21 + 6, 0)


def test_the_answer_is_kept_behind_a_prompt_that_is_kept_whole(model: Any) -> None:
    rig = Rig(layout=CachedGeneration.layout_of(model), chunks=200, save_unfull_chunk=True)
    keeping = CachedGeneration(model, rig.engine, store_generated=True)

    first = keeping.generate(prompt(22), **NEW, eos_token_id=None)
    second = keeping.generate(first, **NEW, eos_token_id=None)

    assert torch.equal(second, model.generate(first, **NEW, eos_token_id=None))
    assert keeping.last == Served(32, 2 + 12)
    rig.close()
