import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from lmcache_core import Event, EventSubscriber, EventType
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics


class Listener(EventSubscriber):
    """Keeps what it hears."""

    def __init__(
        self,
        kinds: tuple[EventType | str, ...] = (EventType.MP_LOOKUP,),
        then: Callable[[Event], None] = lambda _event: None,
        journal: list[str] | None = None,
        name: str = "",
    ) -> None:
        self.kinds = kinds
        self.then = then
        self.heard: list[Event] = []
        self.journal = [] if journal is None else journal
        self.name = name

    def get_subscriptions(self) -> Mapping[EventType | str, Callable[[Event], None]]:
        return dict.fromkeys(self.kinds, self.hear)

    def hear(self, event: Event) -> None:
        self.heard.append(event)
        self.then(event)

    def shutdown(self) -> None:
        self.journal.append(self.name)


@pytest.fixture
def metrics() -> CacheMetrics:
    return CacheMetrics()


@pytest.fixture
def bus(metrics: CacheMetrics) -> Iterator[EventBus]:
    bus = EventBus(metrics, max_queue_events=3, clock=lambda: 1000.0)
    yield bus
    bus.stop()


def test_an_event_reaches_its_subscriber_whole(bus: EventBus) -> None:
    listener = Listener()
    bus.register_subscriber("listener", listener)
    bus.publish(EventType.MP_LOOKUP, {"found_count": 3}, "session")
    bus.stop()

    assert listener.heard == [Event(EventType.MP_LOOKUP, 1000.0, {"found_count": 3}, "session")]


def test_events_come_in_order(metrics: CacheMetrics) -> None:
    bus, listener = EventBus(metrics), Listener()
    bus.register_subscriber("listener", listener)
    for number in range(100):
        bus.publish(EventType.MP_LOOKUP, {"n": number})
    bus.stop()

    assert [event.metadata["n"] for event in listener.heard] == list(range(100))


def test_a_plugins_own_kind_of_event_is_carried(bus: EventBus) -> None:
    listener = Listener(("acme.thing",))
    bus.register_subscriber("listener", listener)
    bus.publish("acme.thing")
    bus.stop()

    assert [event.event_type for event in listener.heard] == ["acme.thing"]


def test_an_event_of_another_kind_is_not_delivered(bus: EventBus) -> None:
    listener = Listener()
    bus.register_subscriber("listener", listener)
    bus.publish(EventType.MP_STORE_END)
    bus.stop()

    assert listener.heard == []


def test_without_a_subscriber_nothing_is_kept_and_no_thread_runs(bus: EventBus, metrics: CacheMetrics) -> None:
    before = {thread.name for thread in threading.enumerate()}
    for _ in range(10):
        bus.publish(EventType.MP_LOOKUP)

    assert {thread.name for thread in threading.enumerate()} <= before
    assert metrics.registry.get_sample_value("lmcache:events_dropped_total") == 0


def test_has_subscribers_says_whether_metadata_is_worth_building(bus: EventBus) -> None:
    before = bus.has_subscribers(EventType.MP_LOOKUP)
    bus.register_subscriber("listener", Listener())

    assert (before, bus.has_subscribers(EventType.MP_LOOKUP), bus.has_subscribers(EventType.MP_STORE_END)) == (
        False,
        True,
        False,
    )


def test_a_full_queue_drops_the_new_event_and_counts_it(
    bus: EventBus, metrics: CacheMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold(_event: Event) -> None:
        entered.set()
        go_on.wait(10)

    listener = Listener(then=hold)
    bus.register_subscriber("listener", listener)
    bus.publish(EventType.MP_LOOKUP, {"n": 0})
    assert entered.wait(10)
    with caplog.at_level(logging.WARNING):
        for number in range(1, 10):
            bus.publish(EventType.MP_LOOKUP, {"n": number})
    go_on.set()
    bus.stop()

    assert [event.metadata["n"] for event in listener.heard] == [0, 1, 2, 3]
    assert metrics.registry.get_sample_value("lmcache:events_dropped_total") == 6
    assert caplog.messages == ["event bus dropped EventType.MP_LOOKUP: 3 events wait, the most allowed"]


def test_publishing_never_waits_for_a_stuck_subscriber(bus: EventBus) -> None:
    go_on = threading.Event()
    bus.register_subscriber("stuck", Listener(then=lambda _event: go_on.wait(10) and None))
    started = time.perf_counter()
    for _ in range(1000):
        bus.publish(EventType.MP_LOOKUP)
    elapsed_s = time.perf_counter() - started
    go_on.set()

    assert elapsed_s < 1.0


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3)])
def test_a_raising_subscriber_harms_no_other(metrics: CacheMetrics, error: BaseException) -> None:
    def fail(_event: Event) -> None:
        raise error

    bus, good = EventBus(metrics), Listener()
    bus.register_subscriber("bad", Listener(then=fail))
    bus.register_subscriber("good", good)
    bus.publish(EventType.MP_LOOKUP)
    bus.publish(EventType.MP_LOOKUP)
    bus.stop()

    assert len(good.heard) == 2
    assert metrics.registry.get_sample_value("lmcache:subscriber_errors_total", {"subscriber": "bad"}) == 2


def test_a_streak_of_errors_is_logged_once(metrics: CacheMetrics, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_event: Event) -> None:
        raise RuntimeError("boom")

    bus = EventBus(metrics)
    bus.register_subscriber("bad", Listener(then=fail))
    for _ in range(5):
        bus.publish(EventType.MP_LOOKUP)
    bus.stop()

    assert caplog.messages == ["event subscriber bad failed; its next errors are only counted"]
    assert caplog.records[0].exc_info is not None


def test_stop_delivers_what_waits_then_shuts_down_in_reverse_order(metrics: CacheMetrics) -> None:
    journal: list[str] = []
    bus = EventBus(metrics)
    first = Listener(journal=journal, name="first", then=lambda _event: journal.append("event"))
    bus.register_subscriber("first", first)
    bus.register_subscriber("second", Listener((), journal=journal, name="second"))
    bus.publish(EventType.MP_LOOKUP)

    assert bus.stop() is True
    assert journal == ["event", "second", "first"]


def test_stop_is_bounded_by_its_timeout(bus: EventBus, caplog: pytest.LogCaptureFixture) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold(_event: Event) -> None:
        entered.set()
        go_on.wait(10)

    bus.register_subscriber("stuck", Listener(then=hold))
    bus.publish(EventType.MP_LOOKUP)
    assert entered.wait(10)
    bus.publish(EventType.MP_LOOKUP)
    stopped = bus.stop(timeout_s=0.01)
    go_on.set()

    assert stopped is False
    assert caplog.messages == ["event bus did not stop within 0.0 s; a subscriber is stuck, 1 events wait"]


def test_after_stop_events_are_ignored(bus: EventBus, metrics: CacheMetrics) -> None:
    listener = Listener()
    bus.register_subscriber("listener", listener)
    bus.stop()
    bus.publish(EventType.MP_LOOKUP)

    assert listener.heard == []
    assert metrics.registry.get_sample_value("lmcache:events_dropped_total") == 0


def test_a_taken_name_is_refused(bus: EventBus) -> None:
    bus.register_subscriber("listener", Listener())
    with pytest.raises(RuntimeError) as caught:
        bus.register_subscriber("listener", Listener())

    assert str(caught.value) == "event subscriber 'listener' is registered already; choose another name"


def test_a_subscriber_that_comes_after_stop_is_refused(bus: EventBus) -> None:
    bus.stop()
    with pytest.raises(RuntimeError) as caught:
        bus.register_subscriber("late", Listener())

    assert str(caught.value) == "event subscriber 'late' came too late: the event bus is stopped"


def test_many_publishers_lose_nothing_uncounted(metrics: CacheMetrics) -> None:
    bus, listener = EventBus(metrics, max_queue_events=50), Listener()
    bus.register_subscriber("listener", listener)

    def publish() -> None:
        for _ in range(500):
            bus.publish(EventType.MP_LOOKUP)

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.stop()

    dropped = metrics.registry.get_sample_value("lmcache:events_dropped_total")
    assert len(listener.heard) + (dropped or 0) == 8 * 500
