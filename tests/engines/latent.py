"""A tiny DeepSeek of random weights: latent attention (MLA), behind whose prefixes vLLM for CPUs computes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def latent_folder(folder: Path, tokenizer: Path) -> Path:
    """Make the model.

    Args:
        folder: To make it in.
        tokenizer: Folder of a model whose tokenizer it uses.
    """
    from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

    config = DeepseekV2Config(
        vocab_size=json.loads((tokenizer / "config.json").read_text())["vocab_size"],
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.12,
        kv_lora_rank=512,  # with the 64 behind it the one size that the backend takes
        qk_rope_head_dim=64,
        qk_nope_head_dim=32,
        v_head_dim=32,
        q_lora_rank=None,
        first_k_dense_replace=3,
    )
    torch.manual_seed(3)
    DeepseekV2ForCausalLM(config).float().save_pretrained(folder)
    for name in _TOKENIZER:
        shutil.copy(tokenizer / name, folder / name)
    return folder
