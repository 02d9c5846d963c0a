"""Each request is told of once, whatever way it took through the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.core.server.served import Served, until
from tests.core.server.talker import Talker, digests

from lmcache_core import Event, EventSubscriber, EventType
from lmcache_core.wire import messages as wire

STORED, RETRIEVED, LOOKED_UP = EventType.MP_STORE_END, EventType.MP_RETRIEVE_END, EventType.MP_LOOKUP_PREFETCH_END


class Witness(EventSubscriber):
    """Keeps what is told of requests."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int]] = []

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        return dict.fromkeys((STORED, RETRIEVED, LOOKED_UP), self._note)

    def _note(self, event: Event) -> None:
        fields = {STORED: "stored_count", RETRIEVED: "retrieved_count", LOOKED_UP: "found_count"}
        kind = EventType(event.event_type)
        self.events.append((kind.name, event.session_id, event.metadata[fields[kind]]))


class Loads(EventSubscriber):
    """Keeps whom a load is for."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        return {EventType.L2_LOAD_TASK_SUBMITTED: self._note}

    def _note(self, event: Event) -> None:
        self.requests.append((event.session_id, event.metadata["request_id"]))


@pytest.fixture
def witness(served: Served) -> Witness:
    made = Witness()
    served.rig.bus.register_subscriber("witness", made)
    return made


def test_a_request_is_told_of_once(served: Served, worker: Talker, witness: Witness) -> None:
    reserved = worker.reserve("a", "b", request_id="r")
    worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease)
    worker.lookup("a", "b", "c", request_id="r")
    worker.give_back(worker.retrieve("a", "b", "c", request_id="r"), delivered=1)
    worker.ping()

    expected = [("MP_STORE_END", "r", 2), ("MP_LOOKUP_PREFETCH_END", "r", 2), ("MP_RETRIEVE_END", "r", 1)]
    assert until(lambda: witness.events == expected)


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_request_that_asks_further_tiers_is_told_of_once(
    served: Served, worker: Talker, witness: Witness, prefetch: bool
) -> None:
    worker.store("a")
    served.rig.storage.flush(10)
    served.rig.local.clear()
    worker.lookup("a", request_id="r", prefetch=prefetch)
    worker.give_back(worker.retrieve("a", request_id="r"))
    worker.ping()

    expected = [("MP_STORE_END", "", 1), ("MP_LOOKUP_PREFETCH_END", "r", 1), ("MP_RETRIEVE_END", "r", 1)]
    assert until(lambda: witness.events == expected)


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_load_names_the_request_that_it_is_for(served: Served, worker: Talker, prefetch: bool) -> None:
    loads = Loads()
    served.rig.bus.register_subscriber("loads", loads)
    worker.store("a")
    served.rig.storage.flush(10)
    served.rig.local.clear()
    worker.lookup("a", request_id="r", prefetch=prefetch)
    worker.give_back(worker.retrieve("a", request_id="r"))

    assert until(lambda: loads.requests == [("r", "r")])


def test_requests_of_nothing_are_told_of_too(served: Served, worker: Talker, witness: Witness) -> None:
    worker.store("a")
    worker.reserve("a", request_id="again")
    worker.retrieve("z", request_id="miss")

    expected = [("MP_STORE_END", "", 1), ("MP_STORE_END", "again", 0), ("MP_RETRIEVE_END", "miss", 0)]
    assert until(lambda: witness.events == expected)


def test_a_lookup_for_all_ranks_is_one_request(
    served: Served, talk: Callable[[Served], Talker], witness: Witness
) -> None:
    scheduler = talk(served)
    scheduler.hello("scheduler")
    scheduler.register(world_size=2, ranks=(0, 1))
    scheduler.lookup("x", digests=(digests("a0"), digests("a1")), request_id="r")

    assert until(lambda: witness.events == [("MP_LOOKUP_PREFETCH_END", "r", 0)])
    assert served.rig.sample("num_requested_tokens_total") == 4


def test_what_a_killed_client_had_reserved_is_not_told_of(served: Served, worker: Talker, witness: Witness) -> None:
    worker.reserve("a")
    worker.die()
    assert until(lambda: served.sessions() == [])
    served.rig.bus.stop(5.0)

    assert witness.events == []
