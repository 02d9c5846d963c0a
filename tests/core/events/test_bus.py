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


class Held(Listener):
    """Waits in its callback: for ``go_on``, or one step at a time."""

    def __init__(self) -> None:
        super().__init__(then=self.hold)
        self.entered, self.go_on, self.steps = threading.Event(), threading.Event(), threading.Semaphore(0)
        self.order: list[object] = []

    def hold(self, event: Event) -> None:
        self.entered.set()
        while not (self.go_on.is_set() or self.steps.acquire(timeout=0.002)):
            pass
        self.order.append(event.metadata.get("n"))

    def events_lost(self, count: int) -> None:
        self.journal.append(f"lost {count}")
        self.order.append(f"lost {count}")

    def shutdown(self) -> None:
        self.journal.append("shutdown")


def sample(metrics: CacheMetrics, family: str, subscriber: str) -> float | None:
    return metrics.registry.get_sample_value(f"lmcache:event_bus_{family}", {"subscriber": subscriber})


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
    assert bus.dropped_events() == 0


def test_has_subscribers_says_whether_metadata_is_worth_building(bus: EventBus) -> None:
    before = bus.has_subscribers(EventType.MP_LOOKUP)
    bus.register_subscriber("listener", Listener())

    assert (before, bus.has_subscribers(EventType.MP_LOOKUP), bus.has_subscribers(EventType.MP_STORE_END)) == (
        False,
        True,
        False,
    )


def test_a_full_queue_drops_the_new_event_counts_it_and_marks_the_gap(bus: EventBus, metrics: CacheMetrics) -> None:
    held = Held()
    bus.register_subscriber("listener", held)
    bus.publish(EventType.MP_LOOKUP, {"n": 0})
    assert held.entered.wait(10)
    for number in range(1, 10):
        bus.publish(EventType.MP_LOOKUP, {"n": number})
    held.go_on.set()
    bus.stop()

    assert [event.metadata["n"] for event in held.heard] == [0, 1, 2, 3]
    assert held.journal == ["lost 6", "shutdown"]
    assert sample(metrics, "dropped_events_total", "listener") == 6


def test_the_gap_is_marked_where_it_is(bus: EventBus) -> None:
    held = Held()
    bus.register_subscriber("listener", held)
    bus.publish(EventType.MP_LOOKUP, {"n": 0})
    assert held.entered.wait(10)
    for number in range(1, 6):
        bus.publish(EventType.MP_LOOKUP, {"n": number})
    held.steps.release()  # 0 is done with, 1 is in hand: there is room
    while bus.lanes()[0].depth == 3:
        time.sleep(0.001)
    bus.publish(EventType.MP_LOOKUP, {"n": 6})
    held.go_on.set()
    bus.stop()

    assert held.order == [0, 1, 2, 3, "lost 2", 6]


def test_drops_of_one_subscriber_are_not_those_of_another(bus: EventBus, metrics: CacheMetrics) -> None:
    held, free = Held(), Listener()
    bus.register_subscriber("held", held)
    bus.register_subscriber("free", free)
    for number in range(10):
        bus.publish(EventType.MP_LOOKUP, {"n": number})
        while len(free.heard) <= number:
            time.sleep(0.0005)
    held.go_on.set()
    bus.stop()

    assert len(free.heard) == 10
    assert sample(metrics, "dropped_events_total", "free") == 0
    assert sample(metrics, "dropped_events_total", "held") == bus.dropped_events() == 10 - len(held.heard) > 0


def test_drop_callbacks_are_coalesced_and_the_log_names_the_subscriber(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []
    held = Held()
    bus.register_subscriber("held", held)
    bus.subscribe_drops(told.append)
    bus.publish(EventType.MP_LOOKUP)
    assert held.entered.wait(10)
    for _ in range(3 + 500):
        bus.publish(EventType.MP_LOOKUP)
    held.go_on.set()
    bus.stop()

    assert sum(told) == 500
    assert len(told) <= 2
    assert caplog.messages[-1] == (f"event bus dropped {told[-1]} events; dropped so far, by subscriber: held (500)")


def test_depth_and_lag_of_a_stuck_subscriber_are_shown(metrics: CacheMetrics) -> None:
    now_s = 1000.0
    bus, held = EventBus(metrics, clock=lambda: now_s), Held()
    bus.register_subscriber("held", held)
    for _ in range(5):
        bus.publish(EventType.MP_LOOKUP)
    assert held.entered.wait(10)
    now_s = 1007.0

    assert sample(metrics, "queue_depth", "held") == 4
    assert sample(metrics, "drain_lag_seconds", "held") == 7.0
    held.go_on.set()
    bus.stop()
    assert sample(metrics, "drain_lag_seconds", "held") == 0.0


def test_an_event_type_and_its_text_are_one_kind(bus: EventBus) -> None:
    listener = Listener(("mp.lookup",))
    bus.register_subscriber("listener", listener)
    bus.publish(EventType.MP_LOOKUP)
    bus.stop()

    assert len(listener.heard) == 1


@pytest.mark.timing
@pytest.mark.parametrize("fault", ["raises", "sleeps", "hangs"])
def test_a_bad_subscriber_harms_neither_publishers_nor_siblings(metrics: CacheMetrics, fault: str) -> None:
    """Field fault H7: 10,000 events at full speed into a queue of 100."""
    go_on = threading.Event()

    def misbehave(_event: Event) -> None:
        if fault == "raises":
            raise RuntimeError("boom")
        go_on.wait(5.0 if fault == "sleeps" else 60.0)

    bus, good = EventBus(metrics, max_queue_events=100), Listener()
    bus.register_subscriber("bad", Listener(then=misbehave))
    bus.register_subscriber("good", good)
    took_s, heard = [], 0
    for number in range(10_000):
        started = time.perf_counter()
        bus.publish(EventType.MP_LOOKUP)
        took_s.append(time.perf_counter() - started)
        if number % 50 == 49:  # so that the good one, and only the bad one, cannot be at fault
            while len(good.heard) <= number:
                time.sleep(0.0005)
    heard = len(good.heard)
    started = time.monotonic()
    stopped = bus.stop()
    stop_s = time.monotonic() - started
    go_on.set()

    assert heard == 10_000
    assert sorted(took_s)[9_900] < 0.001
    assert sample(metrics, "dropped_events_total", "good") == 0
    assert stop_s < 5.0
    assert stopped is (fault == "raises")


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
    assert sample(metrics, "subscriber_exceptions_total", "bad") == 2


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
    held = Held()
    bus.register_subscriber("stuck", held)
    bus.publish(EventType.MP_LOOKUP)
    assert held.entered.wait(10)
    bus.publish(EventType.MP_LOOKUP)
    stopped = bus.stop(timeout_s=0.01)
    held.go_on.set()

    assert stopped is False
    assert caplog.messages == [
        "event subscriber stuck did not end within 0.0 s and is left behind; 1 events wait for it"
    ]


def test_a_stuck_subscriber_takes_no_siblings_last_call(metrics: CacheMetrics) -> None:
    bus, held, good = EventBus(metrics), Held(), Listener(name="good")
    bus.register_subscriber("good", good)
    bus.register_subscriber("stuck", held)
    bus.publish(EventType.MP_LOOKUP)
    assert bus.stop(timeout_s=0.1) is False
    held.go_on.set()

    assert good.journal == ["good"]


def test_stopping_twice_is_stopping_once(bus: EventBus) -> None:
    listener = Listener(name="listener")
    bus.register_subscriber("listener", listener)

    assert (bus.stop(), bus.stop(), listener.journal) == (True, True, ["listener"])


def test_after_stop_events_are_ignored(bus: EventBus, metrics: CacheMetrics) -> None:
    listener = Listener()
    bus.register_subscriber("listener", listener)
    bus.stop()
    bus.publish(EventType.MP_LOOKUP)

    assert listener.heard == []
    assert bus.dropped_events() == 0


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

    assert len(listener.heard) + bus.dropped_events() == 8 * 500
