"""Clients killed with -9 at each step: within two seconds all they held is free, and others notice nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.server.served import Served, until
from tests.core.server.talker import Talker
from tests.memory_store import Gate

from lmcache_core.wire import messages as wire

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("dying_client.py")
LIMIT_S = 2.0
SLOW = ("slow lookup", "slow prefetch", "slow retrieve")
STEPS = (
    "welcomed",
    "attached",
    "registered",
    "reserved",
    "half written",
    "committed",
    "promised",
    "lent",
    "half read",
    "returned",
    *SLOW,
)


def kill_at(step: str, served: Served) -> None:
    """Run a client up to a step and kill it there."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), step, served.server.address],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    process.kill()
    process.communicate()
    assert said == "there\n"


@pytest.fixture
def bystander(served: Served, worker: Talker) -> Talker:
    """Another client, with chunks a and b stored and a lease of its own on a."""
    worker.store("a", "b")
    served.rig.storage.flush(10)
    worker.retrieve("a")
    return worker


@pytest.mark.timing
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_client_leaves_nothing(served: Served, bystander: Talker, step: str) -> None:
    gate = Gate("contains")
    if step in SLOW:
        served.rig.stores[0].fault = gate
    try:
        kill_at(step, served)
        died_s = time.monotonic()
        limit_s = LIMIT_S if step != "welcomed" else 8.0  # it never came to the lifeline
        assert until(lambda: [session["name"] for session in served.sessions()] == ["worker"], limit_s)
        assert time.monotonic() - died_s < limit_s
    finally:
        gate.open()
    assert until(lambda: served.server.slow_count() == 0)

    rig = served.rig
    used, free = rig.arena.balance()
    assert used + free == rig.arena.capacity_bytes
    assert rig.arena.blocks == rig.local.chunks == (4 if step == "committed" else 2)
    assert (rig.storage.promises, rig.storage.claims) == (0, 0)
    assert served.server.lease_counts() == (0, 1)


def test_a_half_written_chunk_is_never_found(served: Served, bystander: Talker) -> None:
    kill_at("half written", served)
    assert until(lambda: served.rig.storage.claims == 0)
    found = bystander.lookup("new 1")

    assert isinstance(found, wire.Found)
    assert found.chunks == 0
    assert bystander.store("new 1", "new 2") == 2


def test_the_blocks_of_the_dead_are_counted(served: Served, bystander: Talker) -> None:
    kill_at("reserved", served)

    assert until(lambda: served.rig.sample("server_blocks_freed_by_death_total") == 2)


def test_a_frozen_client_keeps_its_blocks(served: Served, bystander: Talker, talk: Callable[[Served], Talker]) -> None:
    """It could still write into them; only its death gives them back."""
    frozen = talk(served).enter("frozen")
    reserved = frozen.reserve("new 1")
    served.rig.storage.sweep()
    served.server._parts.desk.sessions[frozen.session].seen_s -= 3600
    other = bystander.reserve(*range(20))

    assert reserved.offsets[0] not in other.offsets
    assert served.sessions()[1]["leases"] == 1
