"""A caller in haste says nothing of the store; a store that never answers is found out all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.memory_store import Gate, Rig, refuse

from lmcache_core import BackendTimeoutError, ChunkKey
from lmcache_core.storage.breaker import BreakerState

HASTE_S = 0.001
SLOW_S = 0.05


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(timeout_s=0.4)
    yield made
    made.close()


def key(rig: Rig) -> ChunkKey:
    return ChunkKey(rig.namespace(), bytes(32))


def ask(rig: Rig, timeout_s: float) -> int:
    return rig.tiers[0].count_present([key(rig)], deadline=time.monotonic() + timeout_s)


def be_slow(_call: str) -> None:
    time.sleep(SLOW_S)


def state(rig: Rig) -> BreakerState:
    return rig.tiers[0].breaker.snapshot().state


def until(rig: Rig, wanted: BreakerState, timeout_s: float) -> bool:
    end_s = time.monotonic() + 10
    while state(rig) is not wanted and time.monotonic() < end_s:
        ask(rig, timeout_s)
    return state(rig) is wanted


@pytest.fixture
def patient() -> Iterator[Rig]:
    """One whose store has so much time that no busy machine makes it late."""
    made = Rig(timeout_s=10.0)
    yield made
    made.close()


def test_callers_in_haste_miss_and_the_store_is_not_to_blame(patient: Rig) -> None:
    rig = patient
    rig.stores[0].frames[key(rig).digest] = b"x"
    rig.stores[0].fault = be_slow
    assert [ask(rig, HASTE_S) for _ in range(50)] == [0] * 50

    assert state(rig) is BreakerState.CLOSED
    assert (rig.tiers[0].load_failures, rig.failures, rig.tiers[0].evidence.last_failure) == (0, [], None)
    assert rig.sample("hasty_calls_total", backend=rig.tiers[0].name) == 50
    assert ask(rig, 10.0) == 1


def test_an_answer_that_came_too_late_for_the_caller_counts_for_the_store(patient: Rig) -> None:
    rig, gate = patient, Gate("contains")
    rig.stores[0].fault = gate
    while not gate.entered.is_set():  # a call whose caller has gone before it begins is not made
        ask(rig, HASTE_S)
    gate.open()
    end_s = time.monotonic() + 10
    while not rig.tiers[0].breaker.snapshot().calls and time.monotonic() < end_s:
        time.sleep(0.005)
    report = rig.tiers[0].breaker.snapshot()

    assert report.calls > 0
    assert report.bad_calls == 0


def test_a_store_that_fails_behind_a_caller_in_haste_is_to_blame(rig: Rig) -> None:
    def fail_slowly(call: str) -> None:
        be_slow(call)
        refuse(call)(call)

    rig.stores[0].fault = fail_slowly

    assert until(rig, BreakerState.OPEN, HASTE_S)
    assert rig.tiers[0].breaker.snapshot().reason == "3 calls in a row failed"


def test_a_store_that_hangs_is_found_out_by_callers_in_haste(rig: Rig) -> None:
    gate = Gate("contains")
    rig.stores[0].fault = gate
    began_s = time.monotonic()
    assert until(rig, BreakerState.OPEN, 0.02)
    took_s = time.monotonic() - began_s
    gate.open()

    assert took_s > 0.4
    assert rig.tiers[0].breaker.snapshot().reason == "a call got no answer before its deadline"


def test_half_of_the_stores_own_time_is_enough_to_blame_it(rig: Rig) -> None:
    gate = Gate("contains")
    rig.stores[0].fault = gate
    ask(rig, 0.25)
    gate.open()

    assert state(rig) is BreakerState.OPEN


def test_a_load_that_keeps_to_a_hasty_deadline_is_no_failure(rig: Rig) -> None:
    tier = rig.tiers[0]
    rig.stores[0].fault = refuse("load", error=BackendTimeoutError("too late"))
    permit = tier.admit()
    assert permit is not None
    began_s = time.monotonic()
    future = tier.start_load(
        lambda backend: backend.load_into([key(rig)], [memoryview(bytearray(1))], deadline=began_s)
    )

    assert tier.finish_load(permit, future, began_s=began_s, deadline=began_s + HASTE_S) is None
    tier.end_loads(permit, passed=False)
    assert (state(rig), tier.load_failures) == (BreakerState.CLOSED, 0)
