"""Cold and warm through ``file://``; what the pages and vLLM's metrics say of it; salts; hooks that fail."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable

import pytest
from tests.engines.conftest import GROWING, GROWING_TOKENS, PROMPTS
from tests.engines.engine import Answer, Engine

TokensOf = Callable[[list[Answer]], list[list[int]]]


@pytest.fixture(scope="module")
def cold(open_engine: Callable[[str], Engine], tiny_expected: list[Answer]) -> Engine:
    del tiny_expected  # engines start in their order
    return open_engine("file cold")


@pytest.fixture(scope="module")
def cold_answers(cold: Engine) -> list[Answer]:
    return cold.answer(PROMPTS)


def test_a_cold_cache_changes_no_token(
    cold_answers: list[Answer], tiny_expected: list[Answer], tokens_of: TokensOf
) -> None:
    assert tokens_of(cold_answers) == tokens_of(tiny_expected[:20])


def test_the_format_names_how_blocks_are_arranged(cold: Engine) -> None:
    described = cold.ask("describe")
    assert described["format"].startswith("vllm/CPU_ATTN/")
    assert "/block32/" in described["format"]
    assert (described["reason"], described["scheduler_reason"]) == ("", "")


def test_the_same_process_answers_from_memory(
    cold: Engine, cold_answers: list[Answer], tiny_expected: list[Answer], tokens_of: TokensOf
) -> None:
    answers = cold.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    assert [answer.cached_tokens for answer in answers] == [answer.prompt_tokens // 64 * 64 for answer in answers]


def test_kv_that_is_not_loaded_would_be_seen_in_every_answer(
    cold: Engine, cold_answers: list[Answer], tiny_expected: list[Answer]
) -> None:
    """What the other tests rest on: the model's answers follow from the KV of the whole prompt."""
    cold.ask("drop_loads")
    try:
        answers = cold.answer([f"No. {prompt}" for prompt in PROMPTS])  # leaves its own in the blocks
        answers = cold.answer(PROMPTS)
    finally:
        cold.ask("mend")
    loaded = [
        (answer.tokens, one.tokens) for answer, one in zip(answers, tiny_expected, strict=False) if answer.cached_tokens
    ]
    assert len(loaded) > 15
    assert all(tokens != expected for tokens, expected in loaded)


def test_the_cache_and_vllm_count_the_same_tokens(cold: Engine, cold_answers: list[Answer]) -> None:
    before, before_cache = cold.ask("metrics"), cold.ask("cache_metrics")
    answers = cold.answer(PROMPTS)
    after, after_cache = cold.ask("metrics"), cold.ask("cache_metrics")
    hit = sum(answer.cached_tokens for answer in answers)

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("vllm:external_prefix_cache_hits_total") == hit
    assert grown("vllm:external_prefix_cache_queries_total") == sum(answer.prompt_tokens for answer in answers)
    assert grown("lmcache:connector_hit_tokens_total") == hit
    assert grown("lmcache:connector_loaded_tokens_total") == hit
    assert grown("lmcache:connector_failed_tokens_total") == 0
    retrieved = after_cache["lmcache:num_retrieved_tokens_total"] - before_cache["lmcache:num_retrieved_tokens_total"]
    assert 0 <= retrieved - hit < 32 * len(answers)  # a last chunk counts whole, vLLM leaves its end out


def test_the_health_page_says_healthy(cold: Engine) -> None:
    with urllib.request.urlopen(f"{cold.ask('page')}/health", timeout=10) as response:
        assert json.load(response)["healthy"] is True


def test_tenants_never_meet(cold: Engine, cold_answers: list[Answer], tiny_expected: list[Answer]) -> None:
    prompt = PROMPTS[:1]
    first, again, other = (cold.answer(prompt, salt=salt)[0] for salt in ("a", "a", "b"))
    assert (first.cached_tokens, again.cached_tokens > 0, other.cached_tokens) == (0, True, 0)
    assert first.tokens == again.tokens == other.tokens == tiny_expected[0].tokens


@pytest.mark.parametrize("hook", ["match", "allocated", "saves", "finished", "start_loads", "take_ended", "save"])
def test_a_hook_that_fails_changes_no_token(
    cold: Engine, cold_answers: list[Answer], tiny_expected: list[Answer], tokens_of: TokensOf, hook: str
) -> None:
    names = {"match": "get_num_new_matched_tokens", "allocated": "update_state_after_alloc"}
    names |= {"saves": "build_connector_meta", "finished": "request_finished", "start_loads": "start_load_kv"}
    names |= {"take_ended": "get_finished", "save": "wait_for_save"}
    counter = f"lmcache:connector_hook_errors_total{{{names[hook]}}}"
    cold.ask("break_hook", hook=hook, chance=0.5, seed=3)
    try:
        answers = cold.answer(PROMPTS[:8])
    finally:
        cold.ask("mend")
    assert tokens_of(answers) == tokens_of(tiny_expected[:8])
    assert cold.ask("metrics").get(counter, 0) > 0


def test_requests_leave_nothing_behind(cold: Engine, cold_answers: list[Answer]) -> None:
    cold.answer(PROMPTS[:2])
    assert cold.ask("leaks") == {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}


def test_what_was_stored_reaches_the_folder(cold: Engine, cold_answers: list[Answer]) -> None:
    assert cold.ask("flush")


# -- a new process with vLLM's prefix cache on, little memory and short steps -----


@pytest.fixture(scope="module")
def warm(cold: Engine, cold_answers: list[Answer], open_engine: Callable[[str], Engine]) -> Engine:
    assert cold.ask("flush")
    return open_engine("file warm")


def test_a_new_process_answers_from_the_folder(warm: Engine, tiny_expected: list[Answer], tokens_of: TokensOf) -> None:
    answers = warm.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    assert warm.ask("metrics")["lmcache:connector_loaded_tokens_total"] > 0


def test_preempted_requests_resume_and_end_as_if_nothing_had_been(
    warm: Engine, tiny_expected: list[Answer], tokens_of: TokensOf
) -> None:
    answers = warm.answer(GROWING, GROWING_TOKENS)
    assert tokens_of(answers) == tokens_of(tiny_expected[20:])
    assert warm.ask("metrics")["vllm:num_preemptions_total"] > 0


def test_requests_leave_nothing_behind_there_either(warm: Engine) -> None:
    assert warm.ask("leaks") == {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}
