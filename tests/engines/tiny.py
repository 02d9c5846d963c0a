"""A tiny Llama of random weights, and an adapter for it: quick to start and to split among workers.

Its answers mean nothing, but they follow from every token before them, which is all that a cache can spoil.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD = 4, 128, 256, 4, 2, 32
LORA_RANK = 8
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def tiny_folder(folder: Path, tokenizer: Path, *, window_tokens: int = 0) -> Path:
    """Make the model.

    Args:
        folder: To make it in.
        tokenizer: Folder of a model whose tokenizer it uses.
        window_tokens: How far every other layer sees, the first among them; 0 for all of them without end.
    """
    folder.mkdir(parents=True)
    for name in _TOKENIZER:
        shutil.copy(tokenizer / name, folder / name)
    vocabulary = json.loads((tokenizer / "config.json").read_text())["vocab_size"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": vocabulary,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if window_tokens:
        kinds = ["sliding_attention", "full_attention"] * (LAYERS // 2)
        config |= {"layer_types": kinds, "sliding_window": window_tokens}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(vocabulary), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def adapter_folder(folder: Path, seed: int) -> Path:
    """Make an adapter that changes what the model keeps of each token."""
    folder.mkdir(parents=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": LORA_RANK,
        "lora_alpha": LORA_RANK,
        "target_modules": ["k_proj", "v_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    source = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for name in ("k_proj", "v_proj"):
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{place}.lora_A.weight"] = _matrix(source, LORA_RANK, HIDDEN)
            weights[f"{place}.lora_B.weight"] = _matrix(source, KV_HEADS * HEAD, LORA_RANK)
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def _weights(vocabulary: int) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(11)
    weights = {
        "model.embed_tokens.weight": _matrix(source, vocabulary, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": _matrix(source, vocabulary, HIDDEN),
    }
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        for name, (rows, columns) in shapes.items():
            weights[f"{place}.{name}.weight"] = _matrix(source, rows, columns) * 1.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{place}.{name}.weight"] = torch.ones(HIDDEN)
    return weights


def _matrix(source: torch.Generator, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=source) / columns**0.5
