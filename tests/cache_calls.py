"""Calls and KV for the tests that run over every kind of cache."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import torch
from tests.cache_stage import LAYOUT, Stage

from lmcache_core import KVLayout

_FRESH = itertools.count(1)


def fresh(tokens: int) -> list[int]:
    """Tokens that no other test uses."""
    first = next(_FRESH) * 1000
    return list(range(first, first + tokens))


def kv_of(tokens: list[int], layout: KVLayout = LAYOUT) -> torch.Tensor:
    """KV that tells its tokens, so that a chunk of others is noticed."""
    shape = layout.kv_shape(len(tokens))
    ramp = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) / 1000
    return (ramp + torch.tensor(tokens, dtype=torch.float32)[None, None, :, None]).to(getattr(torch, layout.dtype))


def read(stage: Stage, tokens: list[int], **how: Any) -> tuple[list[bool], torch.Tensor]:
    """Retrieve into zeros."""
    out = torch.zeros(LAYOUT.kv_shape(len(tokens)))
    return stage.cache.retrieve(tokens, out, **how).tolist(), out


def mask(true: int, of: int) -> list[bool]:
    return [True] * true + [False] * (of - true)


def looked_up(stage: Stage, tokens: list[int]) -> int:
    """Look up and give the promise up."""
    found: int = stage.cache.lookup(tokens)
    if found:
        stage.cache.release(tokens)
    return found


def chunk_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def in_threads(count: int, work: Any) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)
