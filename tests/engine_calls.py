"""KV and calls that the engine's tests share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from tests.memory_store import LAYOUT, Rig

from lmcache_core import KVLayout

MakeRig = Callable[..., Rig]
TOKENS = list(range(10))
"""Two full chunks and a rest."""


def some_kv(tokens: int, layout: KVLayout = LAYOUT) -> torch.Tensor:
    shape = layout.kv_shape(tokens)
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(getattr(torch, layout.dtype))


def retrieved(rig: Rig, tokens: list[int], **how: Any) -> tuple[list[bool], torch.Tensor]:
    out = torch.zeros(rig.layout.kv_shape(len(tokens)), dtype=getattr(torch, rig.layout.dtype))
    return rig.engine.retrieve(tokens, out, **how).tolist(), out


def settle(rig: Rig) -> None:
    """Wait until the stores have every chunk and, where no lookup holds any, nobody but tier 0 a block."""
    assert rig.storage.flush()
    assert until(lambda: all(block.references == 1 for block in rig.local._index._blocks.values()))


def forget_local(rig: Rig) -> None:
    rig.storage.flush()
    rig.local.clear()


def until(true: Callable[[], bool], limit_s: float = 5.0) -> bool:
    """Wait for what another thread does."""
    end = time.monotonic() + limit_s
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return true()
