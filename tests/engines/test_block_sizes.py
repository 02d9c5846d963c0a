"""Blocks of several sizes, and vLLM's own prefix cache beside this one. Smaller ones than 32 are no CPU's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine

TokensOf = Callable[[list[Answer]], list[list[int]]]


@pytest.fixture(scope="module", params=[128, 64])
def size(request: pytest.FixtureRequest, tiny_expected: list[Answer]) -> int:
    del tiny_expected  # engines start in their order
    return int(request.param)


@pytest.fixture(scope="module")
def cold(size: int, open_engine: Callable[[str], Engine]) -> Engine:
    return open_engine(f"blocks of {size}")


@pytest.fixture(scope="module")
def cold_answers(cold: Engine) -> list[Answer]:
    return cold.answer(PROMPTS)


@pytest.fixture(scope="module")
def again(size: int, cold: Engine, cold_answers: list[Answer], open_engine: Callable[[str], Engine]) -> Engine:
    """A new process, whose vLLM has a prefix cache of its own."""
    assert cold.ask("flush")
    return open_engine(f"blocks of {size}, again")


@pytest.fixture(scope="module")
def again_answers(again: Engine) -> list[Answer]:
    return again.answer(PROMPTS)


def test_a_cold_cache_changes_no_token_and_holds_no_chunk_of_other_blocks(
    cold_answers: list[Answer], tiny_expected: list[Answer], tokens_of: TokensOf
) -> None:
    assert tokens_of(cold_answers) == tokens_of(tiny_expected[:20])
    assert {answer.cached_tokens for answer in cold_answers} == {0}


def test_the_format_names_the_size(cold: Engine, size: int) -> None:
    described = cold.ask("describe")
    assert f"/block{size}/" in described["format"]
    assert (described["reason"], described["scheduler_reason"]) == ("", "")


def test_a_new_process_answers_from_the_folder_in_whole_blocks(
    size: int, again: Engine, again_answers: list[Answer], tiny_expected: list[Answer], tokens_of: TokensOf
) -> None:
    assert tokens_of(again_answers) == tokens_of(tiny_expected[:20])
    counts = again.ask("metrics")
    loaded = counts["lmcache:connector_loaded_tokens_total"]
    assert loaded > 0
    assert loaded % size == 0
    assert counts["lmcache:connector_failed_tokens_total"] == 0


def test_what_both_caches_have_vllm_takes_from_its_own(
    again: Engine, again_answers: list[Answer], tiny_expected: list[Answer], tokens_of: TokensOf
) -> None:
    before = again.ask("metrics")
    answers = again.answer(PROMPTS)
    after = again.ask("metrics")
    assert tokens_of(answers) == tokens_of(tiny_expected[:20])
    own = after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"]
    assert own == sum(answer.cached_tokens for answer in answers) > 0
    assert after["lmcache:connector_hit_tokens_total"] == before["lmcache:connector_hit_tokens_total"]


def test_requests_leave_nothing_behind(again: Engine, again_answers: list[Answer]) -> None:
    assert again.ask("leaks") == {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}
