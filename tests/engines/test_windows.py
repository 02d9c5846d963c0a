"""A hybrid model: every other layer sees the last tokens only, and vLLM lets go of its older blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.engines.conftest import GROWING, GROWING_TOKENS, PROMPTS, WINDOW_TOKENS
from tests.engines.engine import Answer, Engine

TokensOf = Callable[[list[Answer]], list[list[int]]]
LONG = [" ".join(PROMPTS[first : first + 4]) for first in range(8)]
"""Prompts of several windows; each shares nothing with the one before but what their parts do."""

NOTHING_LEFT = {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}


def ask(engine: Engine) -> list[Answer]:
    """Ask for long prompts, and for answers that outgrow the window."""
    return [*engine.answer(LONG, GROWING_TOKENS), *engine.answer(GROWING, GROWING_TOKENS)]


@pytest.fixture(scope="module")
def expected(open_engine: Callable[[str], Engine], tiny_expected: list[Answer]) -> list[Answer]:
    """What vLLM answers without a connector."""
    del tiny_expected  # engines start in their order
    engine = open_engine("windows, plain")
    answers = ask(engine)
    engine.stop()
    return answers


@pytest.fixture(scope="module")
def cold(expected: list[Answer], open_engine: Callable[[str], Engine]) -> Engine:
    del expected
    return open_engine("windows")


@pytest.fixture(scope="module")
def cold_answers(cold: Engine) -> list[Answer]:
    return ask(cold)


@pytest.fixture(scope="module")
def again(cold: Engine, cold_answers: list[Answer], open_engine: Callable[[str], Engine]) -> Engine:
    """A new process, with vLLM's own prefix cache, little room and prefill in pieces."""
    assert cold.ask("flush")
    return open_engine("windows, again")


@pytest.fixture(scope="module")
def crowded(again: Engine, open_engine: Callable[[str], Engine]) -> Engine:
    del again
    return open_engine("windows, little room")


def test_the_prompts_outgrow_the_window(expected: list[Answer]) -> None:
    assert min(answer.prompt_tokens for answer in expected[: len(LONG)]) > 4 * WINDOW_TOKENS


def test_a_cold_cache_changes_no_token(
    cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf, cold: Engine
) -> None:
    assert tokens_of(cold_answers) == tokens_of(expected)
    described = cold.ask("describe")
    assert "/groups-" in described["format"]
    assert (described["reason"], described["scheduler_reason"]) == ("", "")


def test_prompts_come_back_from_memory(
    cold: Engine, cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf
) -> None:
    answers = ask(cold)
    assert tokens_of(answers) == tokens_of(expected)
    long = answers[: len(LONG)]
    assert [answer.cached_tokens for answer in long] == [answer.prompt_tokens // 64 * 64 for answer in long]


def test_a_load_that_falls_short_is_computed_whole(
    cold: Engine, cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf
) -> None:
    before = cold.ask("metrics")["lmcache:connector_failed_tokens_total"]
    cold.ask("shorten_loads")
    try:
        answers = ask(cold)
    finally:
        cold.ask("mend")
    assert tokens_of(answers) == tokens_of(expected)
    assert 0 in [answer.cached_tokens for answer in answers[: len(LONG)]]
    assert cold.ask("metrics")["lmcache:connector_failed_tokens_total"] > before
    assert cold.ask("leaks") == NOTHING_LEFT


def test_a_hook_that_fails_now_and_then_changes_no_token(
    cold: Engine, cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf
) -> None:
    for hook in ("start_loads", "allocated", "take_ended"):
        cold.ask("break_hook", hook=hook, chance=0.5, seed=7)
        try:
            assert tokens_of(ask(cold)) == tokens_of(expected), hook
        finally:
            cold.ask("mend")
    assert cold.ask("leaks") == NOTHING_LEFT


def test_what_is_loaded_is_what_is_computed_on(
    cold: Engine, cold_answers: list[Answer], expected: list[Answer], tokens_of: TokensOf
) -> None:
    cold.ask("drop_loads")
    try:
        answers = cold.answer(LONG)
    finally:
        cold.ask("mend")
    assert tokens_of(answers) != [tokens[:6] for tokens in tokens_of(expected[: len(LONG)])]


def test_a_new_process_answers_from_the_folder(again: Engine, expected: list[Answer], tokens_of: TokensOf) -> None:
    answers = ask(again)
    assert tokens_of(answers) == tokens_of(expected)
    counts = again.ask("metrics")
    assert counts["lmcache:connector_loaded_tokens_total"] > len(LONG) * WINDOW_TOKENS
    assert counts["lmcache:connector_failed_tokens_total"] == 0


def test_whole_prompts_and_preempted_requests_change_no_token(
    again: Engine, expected: list[Answer], tokens_of: TokensOf
) -> None:
    for _ in range(2):
        assert tokens_of(ask(again)) == tokens_of(expected)
    assert again.ask("metrics")["vllm:num_preemptions_total"] > 0
    assert again.ask("leaks") == NOTHING_LEFT


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_loads_leave_each_other_room_to_be_computed(
    ends: str, crowded: Engine, cold: Engine, tokens_of: TokensOf
) -> None:
    """Two prompts whose windows' blocks fit at once, and which could never be computed side by side."""
    first = 100 if ends == "well" else 5000
    prompts = [[first + 7 * prompt + place for place in range(1000)] for prompt in range(2)]
    expected = tokens_of(cold.answer(prompts))
    crowded.answer([prompt[:513] for prompt in prompts])
    if ends == "badly":
        crowded.ask("shorten_loads")
    try:
        answers = crowded.answer(prompts)
    finally:
        crowded.ask("mend")
    assert tokens_of(answers) == expected
    assert max(answer.cached_tokens for answer in answers) == 512


def test_the_same_model_without_vllms_hybrid_manager_shares_no_chunk(
    crowded: Engine, expected: list[Answer], tokens_of: TokensOf, open_engine: Callable[[str], Engine]
) -> None:
    del crowded  # engines start in their order
    engine = open_engine("windows as full attention")
    first, second = engine.answer(LONG, GROWING_TOKENS), engine.answer(LONG, GROWING_TOKENS)
    assert tokens_of(first) == tokens_of(second) == tokens_of(expected[: len(LONG)])
    assert first[0].cached_tokens == 0
    assert min(answer.cached_tokens for answer in second) > 4 * WINDOW_TOKENS
