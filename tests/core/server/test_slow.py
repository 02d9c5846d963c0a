"""Calls that wait for a tier behind tier 0 delay no others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.core.server.served import Served, until
from tests.core.server.talker import Talker, digests
from tests.memory_store import Gate, refuse

from lmcache_core.server import control
from lmcache_core.wire import messages as wire
from lmcache_core.wire.messages import RefusalCode

Talk = Callable[[Served], Talker]


@pytest.fixture
def gate(served: Served, worker: Talker) -> Iterator[Gate]:
    """A store that has chunks a and b, holds every question until opened, and a tier 0 that has c."""
    worker.store("a", "b")
    assert served.rig.storage.flush(10)
    served.rig.local.clear()
    worker.store("c")
    assert served.rig.storage.flush(10)
    gate = Gate("contains", "load")
    served.rig.stores[0].fault = gate
    yield gate
    gate.open()


def test_a_slow_tier_delays_no_call_that_tier_0_answers(served: Served, worker: Talker, gate: Gate) -> None:
    worker.say(worker.build(wire.Lookup, digests=(digests("a", "b"),), requested_tokens=8))
    assert gate.entered.wait(10)

    assert worker.ping().healthy
    quick = worker.lookup("c")
    assert isinstance(quick, wire.Found)
    assert (quick.chunks, quick.l1_chunks) == (1, 1)
    assert len(worker.retrieve("c").offsets) == 1
    gate.open()
    late = worker.hear()
    assert isinstance(late, wire.Found)
    assert (late.chunks, late.l1_chunks) == (2, 0)


def test_a_prefetch_loads_what_the_tier_has(served: Served, worker: Talker, gate: Gate) -> None:
    gate.open()
    answer = worker.lookup("a", "b", prefetch=True, request_id="r")
    assert isinstance(answer, wire.Found)

    assert (answer.chunks, answer.l1_chunks) == (2, 0)
    assert served.rig.local.chunks == 3
    assert len(worker.retrieve("a", "b", request_id="r").offsets) == 2


def test_a_retrieve_loads_what_a_lookup_promised(served: Served, worker: Talker, gate: Gate) -> None:
    gate.open()
    worker.lookup("a", "b", request_id="r")
    lent = worker.retrieve("a", "b", request_id="r")
    worker.give_back(lent)
    worker.ping()

    assert len(lent.offsets) == 2
    assert until(served.is_exact)


@pytest.mark.timing
def test_a_call_is_over_at_the_clients_deadline(served: Served, worker: Talker, gate: Gate) -> None:
    began = time.monotonic()
    answer = worker.lookup("a", "b", timeout_s=0.2)

    assert isinstance(answer, wire.Found)
    assert answer.chunks == 0
    assert time.monotonic() - began < served.rig.timeout_s


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan")])
def test_a_deadline_that_is_none_is_now(served: Served, worker: Talker, gate: Gate, timeout_s: float) -> None:
    answer = worker.lookup("a", timeout_s=timeout_s)

    assert isinstance(answer, wire.Found)
    assert answer.chunks == 0


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_forsaken_lookup_is_not_answered_and_holds_nothing(
    served: Served, worker: Talker, gate: Gate, prefetch: bool
) -> None:
    message = worker.build(wire.Lookup, digests=(digests("a", "b"),), requested_tokens=8, prefetch=prefetch)
    worker.say(message)
    assert gate.entered.wait(10)
    worker.say(worker.build(wire.Forsake, lookup_call=message.call))  # type: ignore[attr-defined] # a Lookup
    worker.ping()
    gate.open()

    assert until(lambda: served.server.slow_count() == 0 and served.is_exact())
    assert worker.ping().session_known  # the next answer is the ping's


def test_a_forsaken_retrieve_is_given_back(served: Served, worker: Talker, gate: Gate) -> None:
    message = worker.build(wire.Retrieve, digests=digests("a", "b"))
    worker.say(message)
    assert gate.entered.wait(10)
    worker.say(worker.build(wire.Forsake, lookup_call=message.call))  # type: ignore[attr-defined] # a Retrieve
    gate.open()

    assert until(lambda: served.server.slow_count() == 0 and served.is_exact())


@pytest.mark.parametrize("kind", [wire.Lookup, wire.Retrieve])
def test_a_client_that_dies_while_it_waits_leaves_nothing(
    served: Served, worker: Talker, gate: Gate, kind: type[wire.Message]
) -> None:
    fields = {"digests": digests("a", "b")} if kind is wire.Retrieve else {"digests": (digests("a", "b"),)}
    if kind is wire.Lookup:
        worker.say(worker.build(kind, requested_tokens=8, prefetch=True, **fields))
    else:
        worker.say(worker.build(kind, **fields))
    assert gate.entered.wait(10)
    worker.die()
    assert until(lambda: served.sessions() == [])
    gate.open()

    assert until(lambda: served.server.slow_count() == 0 and served.is_exact())


def test_what_a_stopped_server_was_waiting_for_is_given_back(served: Served, worker: Talker, gate: Gate) -> None:
    worker.say(worker.build(wire.Retrieve, digests=digests("a", "b")))
    assert gate.entered.wait(10)
    assert served.server.stop(drain_s=0.05) is False
    gate.open()

    assert until(served.is_exact)


def test_only_so_many_calls_may_wait(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Served], talk: Talk) -> None:
    monkeypatch.setattr(control, "_MOST_SLOW_CALLS", 2)
    served = serve()
    worker = talk(served).enter()
    gate = Gate("contains")
    served.rig.stores[0].fault = gate
    for number in range(2):
        worker.say(worker.build(wire.Lookup, digests=(digests(number),), requested_tokens=4))
    refused = worker.lookup("third")
    gate.open()

    assert isinstance(refused, wire.Refused)
    assert (refused.code, refused.message) == (
        RefusalCode.BUSY,
        "2 calls wait for slow tiers already; recompute",
    )
    assert {type(worker.hear()) for _ in range(2)} == {wire.Found}


def test_a_store_that_fails_is_a_miss(served: Served, worker: Talker, gate: Gate) -> None:
    gate.open()
    served.rig.stores[0].fault = refuse("contains", "load")
    answer = worker.lookup("a", "b")

    assert isinstance(answer, wire.Found)
    assert answer.chunks == 0
