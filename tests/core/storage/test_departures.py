"""Evictions are told of when the lock of tier 0 is free, in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from tests.engine_calls import until

from lmcache_core import Event, EventSubscriber, EventType, KeyNamespace
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.local_cpu import LocalCPUBackend

CHUNKS = 4
NAMESPACE = KeyNamespace(model_name="m", world_size=1, rank=0, dtype="float32", layout="x", chunk_tokens=4)


class Evictions(EventSubscriber):
    """Keeps the digests that went."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        return {EventType.L1_KEYS_EVICTED: self._note}

    def _note(self, event: Event) -> None:
        self.gone += [key.rpartition("/")[2] for key in event.metadata["keys"]]


class Tier:
    """Tier 0 with room for four chunks, and a gate through which each of its events has to go."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        self.locked: list[bool] = []
        self.gate.set()
        metrics = CacheMetrics()
        self.bus = EventBus(metrics, clock=self._pass)
        self.local = LocalCPUBackend(
            Arena(CHUNKS * ALIGNMENT_BYTES), use_hot=True, metrics=metrics, journal=Journal(self.bus)
        )
        self.evictions = Evictions()

    def listen(self) -> None:
        self.bus.register_subscriber("evictions", self.evictions)

    def keep(self, *numbers: int) -> None:
        """Commit chunks; each makes an old one go when there are four."""
        for number in numbers:
            blocks = self.local.reserve(1, 128)
            self.local.commit(NAMESPACE, [digest(number)], blocks)
            self.local.arena.release(blocks)

    def _pass(self) -> float:
        self.locked.append(self.local._lock.locked())
        self.entered.set()
        assert self.gate.wait(10)
        return 0.0


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def shown(*numbers: int) -> list[str]:
    return [digest(number).hex() for number in numbers]


@pytest.fixture
def tier() -> Iterator[Tier]:
    tier = Tier()
    yield tier
    tier.gate.set()
    tier.bus.stop()


def test_the_lock_is_free_when_the_event_is_made(tier: Tier) -> None:
    tier.listen()
    tier.keep(*range(CHUNKS + 2))

    assert tier.locked == [False, False]


def test_others_go_on_while_one_is_told(tier: Tier) -> None:
    tier.listen()
    tier.keep(*range(CHUNKS))
    tier.gate.clear()
    thread = threading.Thread(target=tier.keep, args=(CHUNKS,))
    thread.start()
    assert tier.entered.wait(10)
    found = tier.local.has_run([digest(CHUNKS - 1)])
    tier.gate.set()
    thread.join()

    assert found


def test_one_is_told_before_whoever_made_it_go_goes_on_and_after_those_before_it(tier: Tier) -> None:
    tier.listen()
    tier.keep(*range(CHUNKS))
    tier.gate.clear()
    threads = [threading.Thread(target=tier.keep, args=(CHUNKS + number,)) for number in range(2)]
    threads[0].start()
    assert tier.entered.wait(10)
    threads[1].start()
    assert until(lambda: tier.local.chunks == CHUNKS - 2)
    second_waits = threads[1].is_alive()
    tier.gate.set()
    for thread in threads:
        thread.join()

    assert second_waits
    assert until(lambda: tier.evictions.gone == shown(0, 1)), tier.evictions.gone


def test_none_is_noted_where_nobody_listens(tier: Tier) -> None:
    tier.keep(*range(CHUNKS + 2))
    tier.listen()
    tier.keep(CHUNKS + 2)

    assert until(lambda: tier.evictions.gone == shown(2)), tier.evictions.gone
