"""An engine over a store that does everything wrong that a store can do, by chance: right bytes or a miss, in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.memory_store import CHUNK_TOKENS, LAYOUT, MemoryStore, Rig

from lmcache_core import BackendFullError
from lmcache_core.storage.breaker import BreakerTerms
from lmcache_core.testing import (
    Call,
    CallDelay,
    CallError,
    CallFault,
    CallHang,
    FaultyBackend,
    LoadCorruption,
    LoadFailure,
    LoadMiss,
    LoadTruncation,
    StoreCut,
)

pytestmark = pytest.mark.timing

DEADLINE_S = 0.3
TOKENS = 4 * CHUNK_TOKENS
QUICK = BreakerTerms(open_s=0.01, max_open_s=0.05, ramp_s=0.05)

FAULTS: dict[str, CallFault] = {
    "errors": CallError(probability=0.3),
    "full": CallError(BackendFullError, calls=Call.STORE, probability=0.5),
    "exits": CallError(SystemExit, probability=0.3),
    "interrupts": CallError(KeyboardInterrupt, probability=0.3),
    "delays": CallDelay(0.005, jitter_s=0.005),
    "hangs": CallHang(calls=Call.LOAD | Call.CONTAINS, probability=0.1),
    "misses": LoadMiss(probability=0.3),
    "failures": LoadFailure(probability=0.3),
    "corruption": LoadCorruption(probability=0.3),
    "truncation": LoadTruncation(probability=0.3),
    "cut stores": StoreCut(probability=0.3),
}


class FaultyMemory(FaultyBackend):
    """What a `Rig` takes."""

    fault = None

    def __init__(self) -> None:
        super().__init__(MemoryStore(), seed=7)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(chunks=64, timeout_s=DEADLINE_S, stores=[FaultyMemory()], breaker=QUICK)  # type: ignore[list-item]
    yield made
    made.stores[0].faults.clear()  # type: ignore[attr-defined]
    made.close()


def prompt(number: int) -> tuple[list[int], torch.Tensor]:
    tokens = list(range(number * 100, number * 100 + TOKENS))
    draw = torch.Generator().manual_seed(number)
    return tokens, torch.rand(LAYOUT.kv_shape(TOKENS), generator=draw)


def fetch(rig: Rig, number: int) -> int:
    """Give the tokens delivered by the store; every byte of them was right."""
    tokens, kv = prompt(number)
    rig.local.clear()
    out = torch.zeros_like(kv)
    rig.engine.lookup(tokens)
    delivered = int(rig.engine.retrieve(tokens, out).sum())
    assert torch.equal(out[:, :, :delivered], kv[:, :, :delivered])
    return delivered


def fill(rig: Rig) -> None:
    for number in range(8):
        rig.engine.store(*prompt(number))
    rig.storage.flush(5.0)


def until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_bytes_are_right_and_in_time_whatever_the_store_does(fault: CallFault, rig: Rig) -> None:
    faults = rig.stores[0].faults  # type: ignore[attr-defined]
    fill(rig)
    faults.apply(fault)
    longest_s = 0.0
    for turn in range(40):
        begin_s = time.monotonic()
        fetch(rig, turn % 8)
        longest_s = max(longest_s, time.monotonic() - begin_s)
        rig.engine.store(*prompt(100 + turn))
    rig.storage.flush(5.0)
    happened = faults.statistics.applied[type(fault).__name__]
    faults.clear()

    def serves_again() -> bool:
        fill(rig)
        return fetch(rig, 0) == TOKENS

    until(serves_again)
    assert happened > 0
    assert longest_s < 2 * DEADLINE_S * 1.2 + 0.1  # a lookup and a retrieve, on a busy machine
    until(lambda: (rig.local.clear(), rig.arena.used_bytes)[1] == 0)


def test_memory_of_a_load_that_hangs_is_freed_when_it_ends_and_not_before(rig: Rig) -> None:
    faults = rig.stores[0].faults  # type: ignore[attr-defined]
    fill(rig)
    faults.apply(CallHang(calls=Call.LOAD))
    delivered = fetch(rig, 0)
    rig.local.clear()
    held_bytes = rig.arena.used_bytes
    faults.clear()

    assert (delivered, held_bytes > 0) == (0, True)
    until(lambda: rig.arena.used_bytes == 0)
