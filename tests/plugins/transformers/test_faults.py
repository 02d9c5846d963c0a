"""Whatever the cache does, the answer is there and is the model's own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.memory_store import Rig, refuse
from tests.plugins.transformers.models import make, padded, prompt
from tests.plugins.transformers.test_options import Listener
from transformers import GenerationMixin

from lmcache_core import LoadResult
from lmcache_plugins.transformers.generation import CachedGeneration, Served
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT

TOKENS = prompt(22)
NEW = {"max_new_tokens": 5, "do_sample": False}


class Broken:
    """A cache of which one call raises, against its contract."""

    chunk_tokens = 4
    save_unfull_chunk = False

    def __init__(self, engine: Any, call: str) -> None:
        self._engine, self._call = engine, call

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            raise RuntimeError(f"{name} broke")
        return getattr(self._engine, name)


def test_an_unhealthy_cache(model: Any, rig: Rig, cached: CachedGeneration) -> None:
    cached.generate(TOKENS, **NEW)
    rig.healthy = False

    answer = cached.generate(TOKENS, **NEW)

    assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert cached.last == Served(0, 0)


@pytest.mark.parametrize("call", ["lookup", "lookup_async", "retrieve", "release", "store", "is_healthy"])
def test_a_cache_that_breaks_its_promise_to_raise_nothing(model: Any, rig: Rig, call: str) -> None:
    CachedGeneration(model, rig.engine).generate(TOKENS, **NEW)
    cached = CachedGeneration(model, Broken(rig.engine, call))
    longer = torch.cat([TOKENS, prompt(9, seed=2)], dim=1)
    batch = padded(longer, TOKENS)

    for inputs in ({"input_ids": longer}, batch):
        assert torch.equal(cached.generate(**inputs, **NEW), model.generate(**inputs, **NEW))


def test_the_fault_is_told_with_its_traceback(model: Any, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    cached = CachedGeneration(model, Broken(rig.engine, "lookup"))

    with caplog.at_level(logging.WARNING, "lmcache_plugins.transformers"):
        cached.generate(TOKENS, **NEW)

    assert cached.uncached == {"the cache failed": 1}
    assert "RuntimeError: lookup broke" in caplog.text


def test_chunks_that_went_between_lookup_and_retrieve(model: Any, rig: Rig, cached: CachedGeneration) -> None:
    cached.generate(TOKENS, **NEW)
    assert rig.storage.flush(5)
    rig.local.clear()
    digests = list(rig.stores[0].frames)
    rig.stores[0].results[digests[2]] = LoadResult.CORRUPT

    answer = cached.generate(TOKENS, **NEW)

    assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert cached.last.reused_tokens == 8


def test_one_row_of_a_batch_comes_short(model: Any, rig: Rig, cached: CachedGeneration) -> None:
    other = prompt(22, seed=2)
    cached.generate(TOKENS, **NEW)
    assert rig.storage.flush(5)
    digests = list(rig.stores[0].frames)
    cached.generate(other, **NEW)
    assert rig.storage.flush(5)
    rig.local.clear()
    rig.stores[0].results[digests[3]] = LoadResult.CORRUPT
    batch = padded(other, TOKENS)

    answer = cached.generate(**batch, **NEW)

    assert torch.equal(answer, model.generate(**batch, **NEW))
    assert cached.last.reused_tokens == 24


def test_a_store_that_refuses_to_load(model: Any, rig: Rig, cached: CachedGeneration) -> None:
    cached.generate(TOKENS, **NEW)
    assert rig.storage.flush(5)
    rig.local.clear()
    rig.stores[0].fault = refuse("load")

    answer = cached.generate(TOKENS, **NEW)

    assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert cached.last.reused_tokens == 0


def test_no_lookup_is_left_open(model: Any, rig: Rig, cached: CachedGeneration) -> None:
    long, short = prompt(40), prompt(6, seed=2)
    cached.generate(long, **NEW)
    cached.generate(**padded(long, short), **NEW)
    cached.generate(**padded(long, prompt(41, seed=3)), **NEW)

    assert rig.storage.promises == 0


class Stubborn:
    """Makes the first step of a model fail when a prefix is there already."""

    def __init__(self, model: Any) -> None:
        self._forward = model.forward
        model.forward = self

    @property
    def __signature__(self) -> Any:
        return inspect.signature(self._forward)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if options[CACHE_ARGUMENT].get_seq_length() and options["input_ids"].shape[1] > 1:
            raise RuntimeError("no prefixes, please")
        return self._forward(*args, **options)


def test_a_model_that_refuses_the_prefix_generates_alone(rig: Rig) -> None:
    own = make("llama")
    cached = CachedGeneration(own, rig.engine)
    expected = cached.generate(TOKENS, **NEW)
    Stubborn(own)

    answer = cached.generate(TOKENS, **NEW)

    assert torch.equal(answer, expected)
    assert cached.uncached == {"the cache failed": 1}


def by_name(listener: Listener) -> tuple[list[Any], dict[str, Any]]:
    return [], {"streamer": listener}


def by_position(listener: Listener) -> tuple[list[Any], dict[str, Any]]:
    names = list(inspect.signature(GenerationMixin.generate).parameters)
    return [None] * (names.index("streamer") - names.index("inputs") - 1) + [listener], {}


@pytest.mark.parametrize("given", [by_name, by_position])
def test_its_streamer_hears_the_prompt_once(rig: Rig, given: Callable[..., Any]) -> None:
    own = make("llama")
    cached = CachedGeneration(own, rig.engine)
    expected, listener = Listener(), Listener()
    cached.generate(TOKENS, streamer=expected, **NEW)
    Stubborn(own)

    args, options = given(listener)
    cached.generate(TOKENS, *args, **options, **NEW)

    assert listener.told == expected.told


def test_a_cache_of_another_layout_keeps_nothing(model: Any) -> None:
    with_other = Rig(chunks=50)
    cached = CachedGeneration(model, with_other.engine)

    for _ in range(2):
        assert torch.equal(cached.generate(TOKENS, **NEW), model.generate(TOKENS, **NEW))

    assert cached.last == Served(0, 0)
    with_other.close()


def test_its_streamer_may_fail_as_ever(model: Any, cached: CachedGeneration) -> None:
    class GoneError(Exception):
        pass

    class Gone(Listener):
        def put(self, value: torch.Tensor) -> None:
            super().put(value)
            if len(self.told) == 1:
                raise GoneError

    listener = Gone()
    cached.generate(TOKENS, **NEW)

    with pytest.raises(GoneError):
        cached.generate(TOKENS, streamer=listener, **NEW)

    assert (len(listener.told), cached.uncached) == (1, {})


@pytest.mark.parametrize(
    "wrong", [{"max_new_tokens": -1}, {"max_length": 3}, {"stop_strings": ["a"], "max_new_tokens": 3}]
)
def test_a_wrong_call_is_no_fault_of_the_cache(
    model: Any, cached: CachedGeneration, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    cached.generate(TOKENS, **NEW)
    with pytest.raises(ValueError) as own:
        model.generate(TOKENS, **wrong)

    with pytest.raises(ValueError) as caught, caplog.at_level(logging.WARNING, "lmcache_plugins"):
        cached.generate(TOKENS, **wrong)

    assert str(caught.value) == str(own.value)
    assert (cached.uncached, [record.name for record in caplog.records if "lmcache" in record.name]) == ({}, [])


def test_a_wrong_call_does_not_hide_a_fault_of_the_cache(model: Any, rig: Rig) -> None:
    cached = CachedGeneration(model, Broken(rig.engine, "lookup"))

    with pytest.raises(ValueError, match="tokenizer"):
        cached.generate(TOKENS, stop_strings=["a"], **NEW)

    assert cached.uncached == {"the cache failed": 1}


class Forgetful:
    """A cache that does not deliver some of what it promises."""

    chunk_tokens = 4
    save_unfull_chunk = False

    def __init__(self, engine: Any, forgotten: slice) -> None:
        self._engine, self._forgotten = engine, forgotten

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def retrieve(self, tokens: Any, out: Any, **owner: str) -> Any:
        mask = np.array(self._engine.retrieve(tokens, out, **owner))
        mask[self._forgotten] = False
        out[:, :, self._forgotten] = float("nan")
        return mask


@pytest.mark.parametrize(
    ("forgotten", "reused"), [(slice(0, None), 0), (slice(4, 8), 4), (slice(8, None), 8), (slice(19, None), 19)]
)
def test_a_promise_that_is_not_kept(model: Any, rig: Rig, forgotten: slice, reused: int) -> None:
    cached = CachedGeneration(model, Forgetful(rig.engine, forgotten))

    for _ in range(2):
        assert torch.equal(cached.generate(TOKENS, **NEW), model.generate(TOKENS, **NEW))
    assert cached.last.reused_tokens == reused
