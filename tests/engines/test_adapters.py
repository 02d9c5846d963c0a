"""LoRA adapters: the model alone and each adapter have KV of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pytest
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine
from tests.engines.tiny import adapter_folder

Adapter: TypeAlias = tuple[str, str] | None

SOME = PROMPTS[:8]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Adapter]:
    """None, two adapters, and one that has the name of another."""
    folder = tmp_path_factory.mktemp("adapters")
    one, other, changed = (str(adapter_folder(folder / name, seed)) for seed, name in enumerate(("one", "other", "v2")))
    return {"none": None, "one": ("one", one), "other": ("other", other), "one, changed": ("one", changed)}


@pytest.fixture(scope="module")
def engine(open_engine: Callable[[str], Engine], tiny_expected: list[Answer]) -> Engine:
    del tiny_expected  # engines start in their order
    return open_engine("adapters")


@pytest.fixture(scope="module")
def first(engine: Engine, adapters: Mapping[str, Adapter]) -> dict[str, list[Answer]]:
    """What each answers, and how much of it was cached, when all prompts are known to those before it."""
    return {name: engine.answer(SOME, adapter=adapter) for name, adapter in adapters.items()}


@pytest.fixture(scope="module")
def second(engine: Engine, adapters: Mapping[str, Adapter], first: dict[str, list[Answer]]) -> dict[str, list[Answer]]:
    return {name: engine.answer(SOME, adapter=adapter) for name, adapter in adapters.items()}


def test_no_adapter_gets_what_another_or_the_model_left(first: dict[str, list[Answer]]) -> None:
    assert {name: sum(answer.cached_tokens for answer in answers) for name, answers in first.items()} == {
        "none": 0,
        "one": 0,
        "other": 0,
        "one, changed": 0,
    }


def test_adapters_answer_differently(
    first: dict[str, list[Answer]], tiny_expected: list[Answer], tokens_of: Callable[[list[Answer]], list[list[int]]]
) -> None:
    assert tokens_of(first["none"]) == tokens_of(tiny_expected[: len(SOME)])
    for place in range(len(SOME)):
        assert len({tuple(answers[place].tokens) for answers in first.values()}) == 4


def test_each_is_answered_from_its_own(
    first: dict[str, list[Answer]],
    second: dict[str, list[Answer]],
    tokens_of: Callable[[list[Answer]], list[list[int]]],
) -> None:
    for name, answers in second.items():
        assert tokens_of(answers) == tokens_of(first[name])
        assert all(answer.cached_tokens > 0 for answer in answers)


def test_requests_leave_nothing_behind(engine: Engine, second: dict[str, list[Answer]]) -> None:
    assert engine.ask("leaks") == {"tracked": 0, "loads": 0, "promises": 0, "reason": ""}
