"""Models of transformers with random weights, two layers each, small enough for a test."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

VOCABULARY = 90
END, PAD = 88, 89
SPECIAL = {"vocab_size": VOCABULARY, "bos_token_id": 87, "eos_token_id": END, "pad_token_id": PAD}
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SPECIAL, **SMALL, "num_key_value_heads": 2}

MAKERS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED, sliding_window=16, use_sliding_window=False)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**GROUPED, head_dim=8)),
    "gpt2, learned positions": lambda: GPT2LMHeadModel(GPT2Config(**SPECIAL, n_embd=32, n_layer=2, n_head=4)),
    "bloom, alibi": lambda: BloomForCausalLM(BloomConfig(**SPECIAL, hidden_size=32, n_layer=2, n_head=4)),
}


def make(name: str) -> Any:
    """A model in float32."""
    torch.manual_seed(0)
    return enlarge(MAKERS[name]())


def enlarge(model: Any) -> Any:
    """In eval mode, with weights large enough that its answers depend on the whole prompt."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.mul_(8)
    return model.eval()


def prompt(tokens: int, seed: int = 1) -> torch.Tensor:
    """One row of tokens, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 80, (1, tokens), generator=generator)


def padded(*rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """A batch of rows, padded on the left, with its mask."""
    columns = max(row.shape[1] for row in rows)
    tokens = torch.full((len(rows), columns), PAD)
    mask = torch.zeros_like(tokens)
    for number, row in enumerate(rows):
        tokens[number, columns - row.shape[1] :] = row[0]
        mask[number, columns - row.shape[1] :] = 1
    return {"input_ids": tokens, "attention_mask": mask}
