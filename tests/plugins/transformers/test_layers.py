"""Between a model's cache and plain tensors, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.plugins.transformers.models import prompt
from transformers import DynamicCache

from lmcache_core import KVLayout, LayoutError
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT, RowPrefix, fill, row_kv

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=8, dtype="float32")
CPU = [torch.device("cpu")] * 2


def prefill(model: Any, tokens: torch.Tensor) -> DynamicCache:
    cache = DynamicCache()
    with torch.no_grad():
        model(tokens, use_cache=True, **{CACHE_ARGUMENT: cache})
    return cache


def test_there_and_back_is_bit_for_bit_equal(model: Any) -> None:
    cache, back = prefill(model, prompt(12)), DynamicCache()

    fill(back, LAYOUT, [RowPrefix(0, row_kv(cache, LAYOUT, 0, 0, 12))], 12, CPU)

    for layer, other in zip(cache.layers, back.layers, strict=True):
        assert torch.equal(layer.keys, other.keys)
        assert torch.equal(layer.values, other.values)


def test_some_tokens_of_one_row_can_be_taken(model: Any) -> None:
    cache = prefill(model, prompt(24).reshape(2, 12))

    kv = row_kv(cache, LAYOUT, 1, 3, 5)

    assert kv.shape == (2, 2, 5, 16)
    assert torch.equal(kv[1, 0].view(5, 2, 8), cache.layers[0].values[1, :, 3:8].transpose(0, 1))


def test_padding_is_zeros_before_each_rows_tokens() -> None:
    cache = DynamicCache()
    rows = [RowPrefix(0, torch.ones(2, 2, 8, 16)), RowPrefix(3, torch.full((2, 2, 4, 16), 2.0)), RowPrefix(9, None)]

    fill(cache, LAYOUT, rows, 5, CPU)

    assert cache.layers[1].values[:, 0, :, 0].tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 2, 2], [0, 0, 0, 0, 0]]


def test_what_is_restored_is_contiguous() -> None:
    cache = DynamicCache()

    fill(cache, LAYOUT, [RowPrefix(0, torch.ones(2, 2, 8, 16))], 5, CPU)

    assert cache.layers[0].keys.is_contiguous()


def test_more_tokens_than_there_are_is_refused(model: Any) -> None:
    with pytest.raises(LayoutError) as caught:
        row_kv(prefill(model, prompt(4)), LAYOUT, 0, 0, 5)

    assert str(caught.value) == (
        "layer 0 holds 1 rows, 2 heads of 8, 4 tokens; expected row 0, 2 heads of 8, at least 5 tokens"
    )


def test_another_number_of_layers_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        row_kv(DynamicCache(), LAYOUT, 0, 0, 4)

    assert str(caught.value) == "the cache has 0 layers, the layout 2"


def test_a_sliding_layer_is_refused(model: Any) -> None:
    from transformers import MistralConfig

    cache = DynamicCache(config=MistralConfig(num_hidden_layers=2, sliding_window=4))

    with pytest.raises(LayoutError) as caught:
        row_kv(cache, LAYOUT, 0, 0, 1)

    assert str(caught.value) == "layer 0 is a DynamicSlidingWindowLayer; only a DynamicLayer keeps whole prefixes"
