"""Against real transformers models with random weights, small enough for a test."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig, Qwen2Config

from lmcache_core import LayoutError
from lmcache_core.adapters.dynamic_cache import DynamicCacheAdapter

# The keyword's older name works in every supported transformers; newer ones warn.
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")

SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = LlamaConfig(**SMALL, **HEADS)
LAYOUT = DynamicCacheAdapter.layout_of(CONFIG, "float32")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(CONFIG).eval()


def prefill(model: LlamaForCausalLM, tokens: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens, past_key_values=cache, use_cache=True).logits


def test_layout_of_grouped_query_attention() -> None:
    assert (LAYOUT.num_layers, LAYOUT.num_kv_heads, LAYOUT.head_size, LAYOUT.dtype) == (2, 2, 8, "float32")


def test_cache_goes_to_a_tensor_and_back_bit_for_bit(model: LlamaForCausalLM) -> None:
    cache = DynamicCache()
    prefill(model, torch.arange(12)[None], cache)
    adapter = DynamicCacheAdapter(LAYOUT)

    back = adapter.from_tensor(adapter.to_tensor(cache, 12), 12)

    for layer, other in zip(cache.layers, back.layers, strict=True):
        assert torch.equal(layer.keys, other.keys)
        assert torch.equal(layer.values, other.values)


def test_logits_after_a_restored_prefix_are_equal(model: LlamaForCausalLM) -> None:
    tokens = torch.arange(12)[None]
    cache = DynamicCache()
    prefill(model, tokens[:, :8], cache)
    adapter = DynamicCacheAdapter(LAYOUT)
    kv = adapter.to_tensor(cache, 8)
    expected = prefill(model, tokens[:, 8:], cache)

    restored = adapter.from_tensor(kv, 8)

    assert torch.equal(prefill(model, tokens[:, 8:], restored), expected)


def test_prefix_of_a_cache_can_be_taken(model: LlamaForCausalLM) -> None:
    cache = DynamicCache()
    prefill(model, torch.arange(12)[None], cache)
    adapter = DynamicCacheAdapter(LAYOUT)

    assert torch.equal(adapter.to_tensor(cache, 5), adapter.to_tensor(cache, 12)[:, :, :5])


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (MistralConfig(**SMALL, **HEADS, sliding_window=16), "sliding_attention"),
        (Gemma3TextConfig(**SMALL, **HEADS, head_dim=8, sliding_window=16), "sliding_attention"),
    ],
)
def test_sliding_windows_are_refused_by_name(config: object, kind: str) -> None:
    with pytest.raises(LayoutError) as caught:
        DynamicCacheAdapter.layout_of(config, "float32")

    assert f"of kind {kind!r}, whose state cannot be rebuilt from a prefix's chunks" in str(caught.value)


def test_switched_off_sliding_window_is_served() -> None:
    config = Qwen2Config(**SMALL, **HEADS, sliding_window=16, use_sliding_window=False)

    assert DynamicCacheAdapter.layout_of(config, "float32").num_layers == 2


def test_more_tokens_than_the_cache_holds_are_refused(model: LlamaForCausalLM) -> None:
    cache = DynamicCache()
    prefill(model, torch.arange(4)[None], cache)

    with pytest.raises(LayoutError) as caught:
        DynamicCacheAdapter(LAYOUT).to_tensor(cache, 5)

    assert str(caught.value) == (
        "layer 0 holds batch 1, 2 heads of 8, 4 tokens; expected batch 1, 2 heads of 8, at least 5 tokens"
    )


def test_batches_are_refused(model: LlamaForCausalLM) -> None:
    cache = DynamicCache()
    prefill(model, torch.arange(8).reshape(2, 4), cache)

    with pytest.raises(LayoutError, match="layer 0 holds batch 2"):
        DynamicCacheAdapter(LAYOUT).to_tensor(cache, 4)


def test_another_number_of_layers_is_refused() -> None:
    with pytest.raises(LayoutError) as caught:
        DynamicCacheAdapter(LAYOUT).to_tensor(DynamicCache(), 4)

    assert str(caught.value) == "the cache has 0 layers, the layout 2"
