"""Adapters of PEFT, as they show on a model: `peft_config`, and layers that say what they do at the moment."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.memory_store import Rig
from tests.plugins.transformers.models import make, prompt

from lmcache_plugins.transformers.generation import CachedGeneration, Served
from lmcache_plugins.transformers.peft_state import full_variant

TOKENS = prompt(22)
NEW = {"max_new_tokens": 5, "do_sample": False}


class AdapterLayer(torch.nn.Module):
    """What a layer of PEFT tells of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.disable_adapters = False
        self.active_adapters = ["default"]
        self.merged_adapters: list[str] = []


@pytest.fixture
def adapted() -> Any:
    """A model with an adapter that changes nothing."""
    model = make("llama")
    model.peft_config = {"default": object()}
    model.adapter_layer = AdapterLayer()
    return model


def test_a_model_without_adapters_needs_no_variant() -> None:
    assert [full_variant(make("llama"), variant) for variant in ("", "v2")] == ["", "v2"]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("disable_adapters", True), ("active_adapters", ["other"]), ("merged_adapters", ["default"])],
)
def test_what_acts_is_part_of_the_variant(adapted: Any, attribute: str, value: Any) -> None:
    before = full_variant(adapted, "lora")

    setattr(adapted.adapter_layer, attribute, value)

    assert full_variant(adapted, "lora") != before


def test_a_disabled_adapter_and_an_active_one_never_meet(adapted: Any, rig: Rig) -> None:
    cached = CachedGeneration(adapted, rig.engine)
    served = []
    for disabled in (False, True, False):
        adapted.adapter_layer.disable_adapters = disabled
        cached.generate(TOKENS, variant="lora", **NEW)
        served.append(cached.last)

    assert served == [Served(0, 20), Served(0, 20), Served(20, 0)]


class Wrapper:
    """Hands everything on to a model, as a `PeftModel` does."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._model(*args, **options)

    def generate(self, *args: Any, **options: Any) -> Any:
        return self._model.generate(*args, **options)


@pytest.mark.parametrize("arguments", [((TOKENS,), {}), ((), {"inputs": TOKENS}), ((), {"input_ids": TOKENS})])
def test_a_wrapper_may_hand_on_its_arguments(rig: Rig, arguments: tuple[Any, Any]) -> None:
    model = make("llama")
    cached = CachedGeneration(Wrapper(model), rig.engine)
    args, named = arguments

    for _ in range(2):
        answer = cached.generate(*args, **named, **NEW, streamer=None)

        assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert cached.last == Served(20, 0)
