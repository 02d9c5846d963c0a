"""Prompts that are kept to their last token: vLLM loads them whole and computes one token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine

TokensOf = Callable[[list[Answer]], list[list[int]]]
BLOCK = 32
ALONE = 15
"""From here on no prompt begins as another does."""


def cached(answers: list[Answer]) -> list[int]:
    return [answer.cached_tokens for answer in answers]


def whole(answers: list[Answer]) -> list[int]:
    """All tokens of each prompt, but of one that is less than a block: that is computed in one step anyway."""
    return [answer.prompt_tokens if answer.prompt_tokens > BLOCK else 0 for answer in answers]


def blocks(answers: list[Answer]) -> list[int]:
    """What vLLM's own prefix cache has of each prompt: whole blocks, and never the last token."""
    return [(answer.prompt_tokens - 1) // BLOCK * BLOCK for answer in answers]


@pytest.fixture(scope="module")
def first(open_engine: Callable[[str], Engine], tiny_expected: list[Answer]) -> Engine:
    del tiny_expected  # engines start in their order
    engine = open_engine("whole prompts")
    engine.answer(PROMPTS)
    return engine


@pytest.fixture(scope="module")
def again(first: Engine, open_engine: Callable[[str], Engine]) -> Engine:
    """A new process with vLLM's own prefix cache on, which has what the first one left in the folder."""
    assert first.ask("flush")
    return open_engine("whole prompts, again")


def test_every_token_of_a_prompt_is_loaded(first: Engine, tiny_expected: list[Answer], tokens_of: TokensOf) -> None:
    answers = first.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    assert cached(answers) == whole(answers)


def test_in_a_new_process_too(again: Engine, tiny_expected: list[Answer], tokens_of: TokensOf) -> None:
    answers = again.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    # What an earlier prompt shares may be in vLLM's own cache before the lookup has ended: then it takes its own.
    found = zip(cached(answers), whole(answers), blocks(answers), strict=True)
    assert all(loaded in (every, own) for loaded, every, own in found), cached(answers)
    assert cached(answers[ALONE:]) == whole(answers[ALONE:])


def test_what_vllm_has_itself_is_not_loaded(again: Engine, tiny_expected: list[Answer], tokens_of: TokensOf) -> None:
    again.answer(PROMPTS)
    before = again.ask("metrics")["lmcache:connector_loaded_tokens_total"]
    answers = again.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    assert cached(answers) == blocks(answers)
    assert again.ask("metrics")["lmcache:connector_loaded_tokens_total"] == before


def test_a_prompt_that_goes_on_differently_has_the_full_chunks(again: Engine) -> None:
    answers = again.answer([f"{prompt} nothing" for prompt in PROMPTS])
    assert all(answer.cached_tokens < answer.prompt_tokens for answer in answers)
    assert sum(answer.cached_tokens for answer in answers) > 0


def test_a_rest_that_does_not_come_is_computed(first: Engine, tiny_expected: list[Answer], tokens_of: TokensOf) -> None:
    first.ask("break_hook", hook="start_loads", chance=0.5, seed=3)
    try:
        answers = first.answer(PROMPTS)
    finally:
        first.ask("mend")
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    assert first.ask("metrics")["lmcache:connector_hook_errors_total{start_load_kv}"] > 0
    assert first.ask("leaks") == {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}
