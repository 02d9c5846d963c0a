"""The demo's generation, on a tiny model with random weights: equal answers, cold and warm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from examples.demo.generate import Generated, Generator
from transformers import LlamaConfig, LlamaForCausalLM

from lmcache_core import CacheManager, KVLayout
from lmcache_plugins.transformers.generation import CachedGeneration

PROMPT = [(7 * place * place + 3) % 300 for place in range(700)]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def layout(model: Any) -> KVLayout:
    return CachedGeneration.layout_of(model)


@pytest.fixture
def open_manager(layout: KVLayout, tmp_path: Path) -> Any:
    def opened(**more: Any) -> CacheManager:
        overrides = {"remote_url": (tmp_path / "store").as_uri(), "max_local_cpu_size": 0.05, **more}
        return CacheManager.from_config(overrides=overrides, environ={}, layout=layout, model_name="tiny")

    return opened


@pytest.fixture
def cold(model: Any) -> Generated:
    return Generator(model, None, ignore).answer(PROMPT, limit_tokens=8, request_id="cold")


@pytest.fixture
def filled(model: Any, open_manager: Any) -> Iterator[Generated]:
    with open_manager() as manager:
        answer = Generator(model, manager, ignore).answer(PROMPT, limit_tokens=8, request_id="a")
        assert manager.storage.flush(timeout_s=10)
    return answer


def ignore(_stage: str, _done: int, _total: int) -> None:
    """Draw no bar."""


def test_without_a_cache_nothing_is_reused_or_stored(cold: Generated) -> None:
    assert (len(cold.tokens), cold.reused_tokens, cold.stored_tokens) == (8, 0, 0)


def test_an_empty_store_takes_all_full_chunks(cold: Generated, filled: Generated) -> None:
    assert (filled.tokens, filled.reused_tokens, filled.stored_tokens) == (cold.tokens, 0, 512)


def test_a_new_manager_answers_alike_from_the_store(
    model: Any, open_manager: Any, cold: Generated, filled: Generated
) -> None:
    with open_manager() as manager:
        warm = Generator(model, manager, ignore).answer(PROMPT, limit_tokens=8, request_id="b")
    assert (warm.tokens, warm.reused_tokens, warm.stored_tokens) == (cold.tokens, 512, 0)


def test_the_last_token_is_always_computed(model: Any, open_manager: Any, filled: Generated) -> None:
    with open_manager() as manager:
        whole = Generator(model, manager, ignore).answer(PROMPT[:512], limit_tokens=1, request_id="c")
    assert whole.reused_tokens == 256


def test_a_whole_prompt_that_comes_again_is_computed_no_more(
    model: Any, open_manager: Any, cold: Generated, filled: Generated
) -> None:
    with open_manager(save_unfull_chunk=True) as manager:
        generator = Generator(model, manager, ignore, whole=True)
        first, again = (generator.answer(PROMPT, limit_tokens=8, request_id=name) for name in ("d1", "d2"))
    assert (first.tokens, first.reused_tokens, first.stored_tokens) == (cold.tokens, 512, 188)
    assert (again.tokens, again.reused_tokens, again.stored_tokens) == (cold.tokens, 699, 0)


def test_progress_covers_the_whole_prompt(model: Any) -> None:
    told: list[tuple[str, int, int]] = []
    Generator(model, None, lambda *step: told.append(step)).answer(PROMPT, limit_tokens=2, request_id="d")
    assert told == [
        ("read", 256, 700), ("read", 512, 700), ("read", 700, 700),
        ("answer", 1, 2), ("answer", 2, 2), ("answer", 2, 2),
    ]  # fmt: skip
