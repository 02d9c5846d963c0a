"""The monitor over a long time and under many hands."""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.core.health.tower import MakeTower, SteeredCheck, Watchtower
from tests.memory_store import Options, Rig

from lmcache_core import HealthReport, HealthState
from lmcache_core.storage.breaker import BreakerTerms

STATE_CHANGES = 100_000
CHECKS = 50
STORM_S = 10.0
THREADS = 32


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Half a million lines of log would be what fills the memory."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class FlippingCheck(SteeredCheck):
    """Passes and fails in turn."""

    def __init__(self, name: str) -> None:
        super().__init__(name, policy="journal", interval=1e-6, fast_interval=1e-6)

    def check(self) -> bool:
        self.runs += 1
        return self.runs % 2 == 0


class InlinePool:
    """Runs each check at once, on the calling thread: the monitor is what is tried here."""

    def submit(self, call: Callable[[], None]) -> None:
        call()

    def close(self) -> None:
        """Nothing to close."""


def change_states(one: Watchtower, count: int) -> None:
    """Look again and again, as the monitor's thread does, until so many states have changed."""
    watches = one.monitor._watches
    while count > 0:
        before = [watch.state for watch in watches]
        one.monitor._execute()
        count -= sum(watch.state is not state for watch, state in zip(watches, before, strict=True))
        one.reports.clear()
        one.journal.journal.clear()


def allocated_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def test_a_hundred_thousand_state_changes_leave_the_memory_flat(tower: MakeTower) -> None:
    checks = (FlippingCheck(f"check-{number:02d}") for number in range(CHECKS))
    one = tower(*checks, builtin_policies=["journal"])  # a third party's takes a thread for each change
    one.monitor._pool = InlinePool()
    change_states(one, STATE_CHANGES // 10)
    before = allocated_blocks()
    change_states(one, STATE_CHANGES)
    grown = allocated_blocks() - before

    assert grown < STATE_CHANGES // 100


LEGAL = {
    HealthState.UNKNOWN: {HealthState.UP, HealthState.DOWN, HealthState.DEGRADED},
    HealthState.UP: {HealthState.DOWN, HealthState.DEGRADED},
    HealthState.DEGRADED: {HealthState.UP, HealthState.DOWN},
    HealthState.DOWN: {HealthState.UP, HealthState.DEGRADED},
}


def test_a_storm_of_failures_gives_legal_transitions_only(tower: MakeTower) -> None:
    """32 threads report failures of live traffic and wake the monitor while checks run; a peer's counters race."""
    rig = Rig(breaker=BreakerTerms(failures=10**9, least_calls=10**9))
    checks = [SteeredCheck(f"c{number}", interval=0.01, policy="journal") for number in range(4)]
    for number, check in enumerate(checks):
        check.run = lambda check=check, number=number: (check.runs + number) % 3 != 0
    one = tower(*checks, rig=rig, options=Options(ping_interval=0.01, ping_timeout=30.0)).start()
    done = time.monotonic() + STORM_S
    reported = [0] * THREADS

    def storm(place: int) -> None:
        tier = rig.tiers[0]
        while time.monotonic() < done:
            permit = tier.admit()
            assert permit is not None
            tier.count_load_failure(permit, "refused")
            reported[place] += 1
            one.monitor.wake()
            assert one.monitor.report().healthy is not None

    threads = [threading.Thread(target=storm, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(STORM_S + 30.0)
    one.monitor.stop()

    assert rig.tiers[0].load_failures == sum(reported) > THREADS
    assert illegal(one.reports) == []
    assert unpaired(one.journal.journal) == []


def illegal(reports: list[HealthReport]) -> list[str]:
    """Steps from one report to the next that must not be."""
    wrong = []
    for before, after in itertools.pairwise(reports):
        steps = [(old.name, old.state, new.state) for old, new in zip(before.checks, after.checks, strict=True)]
        wrong += [f"{name}: {old} -> {new}" for name, old, new in steps if old is not new and new not in LEGAL[old]]
    return wrong


def unpaired(journal: list[str]) -> list[str]:
    """Engagements of an engaged policy, and releases of one that was not."""
    engaged: set[str] = set()
    wrong = []
    for line in journal:
        what, name = line.split()
        if (what == "engage") == (name in engaged):
            wrong.append(line)
        (engaged.add if what == "engage" else engaged.discard)(name)
    return wrong
