"""A store that counts wrong what it has is a store that fails."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.memory_store import MemoryStore, Rig

from lmcache_core import ChunkKey
from lmcache_core.storage.leading import leading


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(clock=lambda: 0.0)
    yield made
    made.close()


@pytest.mark.parametrize("count", [0, 2, 3, np.int64(2)])
def test_a_count_that_can_be_true_is_taken(count: Any) -> None:
    assert leading(count, 3) == count


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (4, "ValueError: gave 4 for 3 keys; give how many of the leading ones are there"),
        (-1, "ValueError: gave -1 for 3 keys; give how many of the leading ones are there"),
        (None, "TypeError: 'NoneType' object cannot be interpreted as an integer"),
        ("2", "TypeError: 'str' object cannot be interpreted as an integer"),
        (2.0, "TypeError: 'float' object cannot be interpreted as an integer"),
    ],
)
def test_a_count_that_cannot_be_true_is_a_failed_lookup(rig: Rig, monkeypatch, count: object, reason: str) -> None:
    def count_wrong(_store: MemoryStore, keys: Sequence[ChunkKey], *, deadline: float) -> object:
        del keys, deadline
        return count

    monkeypatch.setattr(MemoryStore, "contains", count_wrong)
    (tier,) = rig.tiers
    keys = [ChunkKey(rig.namespace(), bytes([place]) * 32) for place in range(3)]

    assert tier.count_present(keys, deadline=time.monotonic() + 10.0) == 0
    assert tier.load_failures == 1
    assert tier.evidence.last_failure is not None
    assert reason in str(tier.evidence.last_failure)
