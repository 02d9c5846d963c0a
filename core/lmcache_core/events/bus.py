"""Carries events from the data path to subscribers, without ever holding the data path up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lmcache_core.contracts.control import ThreadReport
from lmcache_core.contracts.event import EventSubscriber, EventType
from lmcache_core.events.lane import Lane

log = logging.getLogger(__name__)

_MAX_QUEUE_EVENTS = 10_000  # LMCache's bound
_DROP_REPORT_GAP_S = 1.0  # a flood of drops is one line a second
_DROP_LANE = "drops"


class BusMetrics(Protocol):
    """Where a bus shows itself."""

    def watch_bus(self, bus: EventBus) -> None:
        """Show depth, lag, drops and errors by subscriber, read at each scrape; told once."""


class EventBus:
    """Hands events to subscribers, to each on a daemon thread of its own, in the order they were published.

    A subscriber that raises, sleeps or never returns harms no other one and no publisher: its own
    queue fills, and then its own events are dropped and counted. Without a subscriber `publish` does
    nothing and no thread runs. Safe from any thread.

    Args:
        metrics: Shows depth, lag, drops and errors.
        max_queue_events: Most events that wait for one subscriber.
        clock: Seconds since the epoch, for `Event.timestamp`.
    """

    def __init__(
        self,
        metrics: BusMetrics,
        *,
        max_queue_events: int = _MAX_QUEUE_EVENTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limit = max_queue_events
        self._clock = clock
        self._lock = threading.Lock()
        self._routes: Mapping[EventType | str, tuple[Lane, ...]] = {}
        self._lanes: tuple[Lane, ...] = ()
        self._drops: Lane | None = None
        self._drop_callbacks: tuple[Callable[[int], None], ...] = ()
        self._closing = False
        metrics.watch_bus(self)

    def publish(
        self, event_type: EventType | str, metadata: Mapping[str, Any] | None = None, session_id: str = ""
    ) -> None:
        """Queue one event for its subscribers. Never waits, never raises; a no-op where nobody listens."""
        lanes = self._routes.get(event_type)
        if lanes is None:
            return
        item = (event_type, self._clock(), {} if metadata is None else metadata, session_id)
        for lane in lanes:
            if len(lane.queue) < lane.limit and not lane.lost:  # as in `Lane.offer`, which costs as much again
                lane.queue.append(item)
                if lane.idle:
                    lane.wake()
            elif not lane.offer(item) and self._drops is not None:
                self._drops.offer(item)

    def has_subscribers(self, event_type: EventType | str) -> bool:
        """Tell whether an event of this kind would reach anybody, so that its metadata is worth building."""
        return event_type in self._routes

    def register_subscriber(self, name: str, subscriber: EventSubscriber) -> None:
        """Let a subscriber see every event published from now on.

        Raises:
            RuntimeError: The name is taken, or the bus is stopped.
        """
        subscriptions = dict(subscriber.get_subscriptions())
        with self._lock:
            if self._closing:
                raise RuntimeError(f"event subscriber {name!r} came too late: the event bus is stopped")
            if name == _DROP_LANE or any(name == lane.name for lane in self._lanes):
                raise RuntimeError(f"event subscriber {name!r} is registered already; choose another name")
            if self._drops is None:
                self._drops = self._watch_drops()
            lane = Lane(
                name,
                subscriptions,
                on_lost=subscriber.events_lost,
                on_end=subscriber.shutdown,
                limit=self._limit,
            )
            self._lanes = (*self._lanes, lane)
            routes = dict(self._routes)
            for event_type in subscriptions:
                routes[event_type] = (*routes.get(event_type, ()), lane)
            self._routes = routes  # replaced whole: publish reads it without the lock

    def subscribe_drops(self, callback: Callable[[int], None]) -> None:
        """Be told how many events were dropped, all subscribers together, at most once a second.

        Runs on a thread of the bus, never on a publisher's.
        """
        with self._lock:
            self._drop_callbacks = (*self._drop_callbacks, callback)

    def dropped_events(self) -> int:
        """Events that found a queue full since the start, all subscribers together."""
        return sum(lane.dropped for lane in self._lanes)

    def lanes(self) -> Sequence[Lane]:
        """The subscribers' queues, in the order of registration."""
        return self._lanes

    def lag_s(self, lane: Lane) -> float:
        """Seconds that the oldest event has waited which the subscriber is not done with."""
        oldest_s = lane.oldest_s()
        return 0.0 if oldest_s is None else max(0.0, self._clock() - oldest_s)

    def threads(self) -> list[ThreadReport]:
        """Tell how the subscribers' threads fare; none once the bus is stopping."""
        reports = [
            ThreadReport(
                name=f"EventBus-{lane.name}",
                level="low",
                is_alive=lane.is_alive,
                silent_s=self.lag_s(lane),
                interval_s=0.0,
            )
            for lane in self._lanes
        ]
        return [] if self._closing else reports  # asked last: one that ends as it was told to is no dead one

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Take no more events, deliver what waits, then call each `shutdown`, last registered first.

        Delivery has half of the time at most; the rest is shared by those that have to shut down.

        Returns:
            False when a subscriber held that up for longer than `timeout_s`; it is left behind.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            first, self._closing = not self._closing, True
            self._routes = {}
            lanes, drops = self._lanes, self._drops
        if not first or drops is None:
            return True
        for lane in lanes:
            lane.close()
        drained_by_s = deadline_s - timeout_s / 2
        stuck = [lane for lane in lanes if not lane.drained.wait(max(0.0, drained_by_s - time.monotonic()))]
        ending = [lane for lane in reversed(lanes) if lane not in stuck]
        for place, lane in enumerate(ending):
            share_s = (deadline_s - time.monotonic()) / (len(ending) - place)
            if not lane.end(max(0.0, share_s)):
                stuck.append(lane)
        drops.close()
        drops.end(max(0.0, deadline_s - time.monotonic()))
        for lane in stuck:
            lane.let_go()
            log.warning(
                "event subscriber %s did not end within %.1f s and is left behind; %d events wait for it",
                lane.name,
                timeout_s,
                lane.depth,
            )
        return not stuck

    def _watch_drops(self) -> Lane:
        return Lane(_DROP_LANE, {}, on_lost=self._tell_drops, on_end=lambda: None, limit=0, rest_s=_DROP_REPORT_GAP_S)

    def _tell_drops(self, count: int) -> None:
        full = ", ".join(f"{lane.name} ({lane.dropped})" for lane in self._lanes if lane.dropped)
        log.warning("event bus dropped %d events; dropped so far, by subscriber: %s", count, full)
        for callback in self._drop_callbacks:
            callback(count)
