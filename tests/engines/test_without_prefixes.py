"""A backend that computes nothing behind a prefix: what it would make of a loaded one is no answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine

TokensOf = Callable[[list[Answer]], list[list[int]]]


@pytest.fixture(scope="module")
def expected(open_engine: Callable[[str], Engine], tiny_expected: list[Answer]) -> list[Answer]:
    """What vLLM answers without a connector."""
    del tiny_expected  # engines start in their order
    engine = open_engine("latent, plain")
    answers = engine.answer(PROMPTS)
    engine.stop()
    return answers


@pytest.fixture(scope="module")
def engine(expected: list[Answer], open_engine: Callable[[str], Engine]) -> Engine:
    del expected
    return open_engine("latent")


def test_it_says_so(engine: Engine) -> None:
    assert engine.ask("describe")["reason"] == (
        "vllm: chunked prefill and prefix caching are both off, as vllm sets them where an attention backend cannot "
        "compute behind a prefix; if that was you, switch one of them on"
    )


def test_no_answer_changes(engine: Engine, expected: list[Answer], tokens_of: TokensOf) -> None:
    for _ in range(2):
        answers = engine.answer(PROMPTS)
        assert tokens_of(answers) == tokens_of(expected)
        assert {answer.cached_tokens for answer in answers} == {0}
