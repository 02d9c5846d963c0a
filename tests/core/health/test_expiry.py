import threading
from collections.abc import Callable

from tests.core.health.desk import BACKEND, Desk

from lmcache_core.health.expiry import OverrideExpiry
from lmcache_core.threads import PeriodicThreadRegistry

MakeDesk = Callable[..., Desk]


def test_the_thread_ends_an_override_when_its_time_is_over(desk: MakeDesk) -> None:
    one = desk()
    one.add(ttl_s=60.0)
    ended = threading.Event()
    one.overrides._on_change = ended.set
    registry = PeriodicThreadRegistry()
    thread = OverrideExpiry(one.overrides, registry)
    thread.start()
    one.clock.now_s += 60.0
    thread.wake()

    assert ended.wait(5)
    assert one.rig.storage.bypassed() == {}
    assert thread.stop()


def test_it_wakes_for_the_next_one_and_looks_at_the_clock_in_between(desk: MakeDesk) -> None:
    one = desk()
    thread = OverrideExpiry(one.overrides, PeriodicThreadRegistry())
    thread._execute()
    idle_s = thread._next_wait_s()
    one.add(ttl_s=3.0)
    thread._execute()

    assert (idle_s, thread._next_wait_s()) == (5.0, 3.0)
    assert one.rig.storage.bypassed() == {BACKEND: ("operator:alice",)}
