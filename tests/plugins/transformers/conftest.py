"""A tiny model, and a cache for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.memory_store import Rig
from tests.plugins.transformers.models import make

from lmcache_plugins.transformers.generation import CachedGeneration


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny tensors: threads that wait for each other cost far more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> Any:
    return make("llama")


@pytest.fixture
def rig(model: Any) -> Iterator[Rig]:
    """An engine with chunks of four tokens."""
    opened = Rig(layout=CachedGeneration.layout_of(model), chunks=200)
    yield opened
    opened.close()


@pytest.fixture
def cached(model: Any, rig: Rig) -> CachedGeneration:
    return CachedGeneration(model, rig.engine)
