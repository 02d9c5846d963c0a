import threading
from collections.abc import Callable

import torch
from tests.core.health.desk import BACKEND, Desk
from tests.memory_store import CHUNK_TOKENS, Gate, Rig

MakeDesk = Callable[..., Desk]


def store_some(rig: Rig, chunks: int) -> None:
    tokens = list(range(chunks * CHUNK_TOKENS))
    rig.engine.store(tokens, torch.ones(rig.layout.kv_shape(len(tokens))))


def test_a_drain_writes_what_waits_and_takes_nothing_new(desk: MakeDesk) -> None:
    one = desk()
    gate = Gate("store")
    one.rig.stores[0].fault = gate
    store_some(one.rig, 3)
    assert gate.entered.wait(5)
    done: list[object] = []
    drain = threading.Thread(
        target=lambda: done.append(one.overrides.drain(BACKEND, owner="alice", reason="move", ttl_s=60))
    )
    drain.start()
    while not one.bypass.offers:
        drain.join(0.001)
    during = (one.bypass.reads, one.bypass.writes, one.overrides.annotate(one.rig.storage.describe())[0].holds[0])
    store_some(one.rig, 4)
    gate.open()
    drain.join(10)

    assert (during[0], during[1], during[2].draining) == (False, False, True)
    assert done[0][1] is True  # type: ignore[index]
    assert len(one.rig.stores[0].frames) == 3
    assert (one.bypass.reads, one.bypass.writes) == (True, True)
    assert one.events() == ["added", "drained"]
    assert one.rig.sample("lost_chunks_total", backend=BACKEND, reason="bypassed") == 1


def test_a_drain_of_a_hung_store_ends_in_time_and_leaves_it_out(desk: MakeDesk) -> None:
    one = desk()
    gate = Gate("store")
    one.rig.stores[0].fault = gate
    store_some(one.rig, 1)
    assert gate.entered.wait(5)
    _, flushed = one.overrides.drain(BACKEND, owner="alice", reason="move", ttl_s=60, timeout_s=0.05)

    assert not flushed
    assert (one.bypass.reads, one.bypass.writes) == (True, True)
    assert one.events() == ["added", "drain timed out"]


def test_a_drain_that_is_removed_meanwhile_leaves_no_hold_behind(desk: MakeDesk) -> None:
    one = desk()
    gate = Gate("store")
    one.rig.stores[0].fault = gate
    store_some(one.rig, 1)
    assert gate.entered.wait(5)
    drain = threading.Thread(target=lambda: one.overrides.drain(BACKEND, owner="alice", reason="move", ttl_s=60))
    drain.start()
    while not one.bypass.offers:
        drain.join(0.001)
    one.overrides.remove(BACKEND, owner="alice")
    gate.open()
    drain.join(10)

    assert one.rig.storage.bypassed() == {}


def test_a_drain_is_a_full_override_after_a_restart(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.overrides.drain(BACKEND, owner="alice", reason="move", ttl_s=60)
    first.overrides.close()
    second = desk()
    second.overrides.restore()

    assert (second.bypass.reads, second.bypass.writes) == (True, True)
