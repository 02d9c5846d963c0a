"""Two ranks, each with its half of the KV: in caches of their own, and in one server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine

TokensOf = Callable[[list[Answer]], list[list[int]]]

WELL = [{"rank": (rank, 2), "reason": "", "promises": 0} for rank in (0, 1)]


def cached(answers: list[Answer]) -> int:
    return sum(answer.cached_tokens for answer in answers)


def values_of(store: Path, world_size: int, rank: int) -> list[Path]:
    """Files of one rank; the folder's name is the model, the ranks, the rank, and more."""
    return [file for file in store.rglob("*.kv") if file.parts[-3].split("@")[1:3] == [str(world_size), str(rank)]]


@pytest.fixture(scope="module")
def expected_of_two(open_engine: Callable[[str], Engine]) -> list[Answer]:
    """What two ranks answer without a connector."""
    engine = open_engine("two ranks, plain")
    answers = engine.answer(PROMPTS)
    engine.stop()
    return answers


@pytest.fixture(scope="module")
def cold(open_engine: Callable[[str], Engine], expected_of_two: list[Answer]) -> Engine:
    del expected_of_two  # engines start in their order
    return open_engine("two ranks")


@pytest.fixture(scope="module")
def cold_answers(cold: Engine) -> list[Answer]:
    return cold.answer(PROMPTS)


@pytest.fixture(scope="module")
def again(cold: Engine, cold_answers: list[Answer], open_engine: Callable[[str], Engine]) -> Engine:
    """A new process, with what the first one left in the folder."""
    assert cold.ask("flush_workers")
    cold.stop()
    return open_engine("two ranks, again")


def test_a_cold_cache_changes_no_token(
    cold: Engine, cold_answers: list[Answer], expected_of_two: list[Answer], tokens_of: TokensOf
) -> None:
    assert tokens_of(cold_answers) == tokens_of(expected_of_two)
    assert cached(cold_answers) == 0
    assert cold.ask("workers") == WELL


def test_the_same_engine_answers_from_the_memory_of_its_ranks(
    cold: Engine, cold_answers: list[Answer], expected_of_two: list[Answer], tokens_of: TokensOf
) -> None:
    before = cold.ask("metrics")
    answers = cold.answer(PROMPTS)
    after = cold.ask("metrics")
    assert tokens_of(answers) == tokens_of(expected_of_two)
    assert cached(answers) > 0.4 * sum(answer.prompt_tokens for answer in answers)

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("vllm:external_prefix_cache_hits_total") == cached(answers)
    assert grown("lmcache:connector_hit_tokens_total") == cached(answers)
    assert grown("lmcache:connector_loaded_tokens_total") == 2 * cached(answers)  # each rank counts


def test_keys_name_the_ranks(cold: Engine, cold_answers: list[Answer], store: Path) -> None:
    assert cold.ask("flush_workers")
    first, second = ({file.name for file in values_of(store, 2, rank)} for rank in (0, 1))
    assert len(first) == len(second) > 0
    assert first.isdisjoint(second)
    assert not values_of(store, 2, 2)


def test_a_new_process_answers_from_the_folder(
    again: Engine, expected_of_two: list[Answer], tokens_of: TokensOf
) -> None:
    answers = again.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(expected_of_two)
    assert all(answer.cached_tokens > 0 for answer in answers if answer.prompt_tokens > 64)
    assert again.ask("workers") == WELL


def test_what_one_rank_cannot_load_both_compute(
    again: Engine, expected_of_two: list[Answer], tokens_of: TokensOf
) -> None:
    before = again.ask("metrics")
    again.ask("break_loads", rank=1)
    try:
        assert tokens_of(again.answer(PROMPTS)) == tokens_of(expected_of_two)
    finally:
        again.ask("mend_workers")
    after = again.ask("metrics")
    hit, loaded = (
        after[name] - before[name]
        for name in ("lmcache:connector_hit_tokens_total", "lmcache:connector_loaded_tokens_total")
    )
    assert hit == loaded > 0  # by the first rank alone
    assert {answer.finish_reason for answer in again.answer(PROMPTS)} == {"length"}


def test_what_is_damaged_at_one_rank_both_compute(
    again: Engine, store: Path, expected_of_two: list[Answer], tokens_of: TokensOf
) -> None:
    assert again.ask("flush_workers")
    again.ask("forget_workers")
    for file in values_of(store, 2, 1):
        value = bytearray(file.read_bytes())
        value[len(value) // 2] ^= 1
        file.write_bytes(value)
    answers = again.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(expected_of_two)
    assert cached(answers) == 0
    assert again.ask("workers") == WELL


def test_what_one_rank_lacks_is_not_found(
    again: Engine, store: Path, expected_of_two: list[Answer], tokens_of: TokensOf
) -> None:
    assert again.ask("flush_workers")
    again.ask("forget_workers")
    for file in values_of(store, 2, 1):
        file.unlink()
    before = again.ask("metrics")["lmcache:connector_failed_tokens_total"]
    answers = again.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(expected_of_two)
    assert cached(answers) == 0
    assert again.ask("metrics")["lmcache:connector_failed_tokens_total"] == before
    assert again.ask("workers") == WELL


def test_it_is_kept_anew(again: Engine, expected_of_two: list[Answer], tokens_of: TokensOf) -> None:
    answers = again.answer(PROMPTS)
    assert tokens_of(answers) == tokens_of(expected_of_two)
    assert cached(answers) > 0
    again.stop()


@pytest.fixture(scope="module")
def client(again: Engine, open_engine: Callable[[str], Engine]) -> Engine:
    del again  # engines start in their order
    return open_engine("two ranks, server")


def test_ranks_share_a_server(client: Engine, expected_of_two: list[Answer], tokens_of: TokensOf) -> None:
    answers = [client.answer(PROMPTS) for _ in range(2)]
    assert [tokens_of(each) for each in answers] == [tokens_of(expected_of_two)] * 2
    assert cached(answers[0]) == 0
    assert all(answer.cached_tokens > 0 for answer in answers[1] if answer.prompt_tokens > 64)
    assert client.ask("workers") == WELL


def test_one_rank_never_gets_the_halves_of_two(
    client: Engine, open_engine: Callable[[str], Engine], tiny_expected: list[Answer], tokens_of: TokensOf, store: Path
) -> None:
    client.stop()
    for file in values_of(store, 1, 0):  # what other tests left there
        file.unlink()
    assert values_of(store, 2, 0)
    one = open_engine("one rank")
    answers = [one.answer(PROMPTS) for _ in range(2)]
    assert [tokens_of(each) for each in answers] == [tokens_of(tiny_expected[:20])] * 2
    assert cached(answers[0]) == 0 < cached(answers[1])
