"""Carries events from the data path to subscribers, without ever holding the data path up."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from prometheus_client import Counter

from lmcache_core.contracts.event import Event, EventSubscriber, EventType

log = logging.getLogger(__name__)

_MAX_QUEUE_EVENTS = 10_000  # LMCache's bound
_WARNING_GAP_S = 1.0  # a flood of drops is one line a second

_Callback = Callable[[Event], None]


class BusMetrics(Protocol):
    """The counters a bus moves."""

    @property
    def events_dropped(self) -> Counter:
        """Events the bus had no room for."""

    @property
    def subscriber_errors(self) -> Counter:
        """Exceptions of event subscribers; label ``subscriber``."""


class EventBus:
    """Hands events to subscribers on one daemon thread, ``EventBus``, in the order they were published.

    Without a subscriber `publish` does nothing and no thread runs. When the queue is full the new
    event is dropped and counted. Safe from any thread.

    Args:
        metrics: Where drops and errors are counted.
        max_queue_events: Most events that wait at once.
        clock: Seconds since the epoch, for `Event.timestamp`.
    """

    def __init__(
        self,
        metrics: BusMetrics,
        *,
        max_queue_events: int = _MAX_QUEUE_EVENTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._limit = max_queue_events
        self._clock = clock
        self._active = False
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._queue: deque[Event] = deque()
        self._callbacks: dict[EventType | str, tuple[tuple[str, _Callback], ...]] = {}
        self._subscribers: list[tuple[str, EventSubscriber]] = []
        self._failing: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._warned_s = float("-inf")

    def publish(
        self, event_type: EventType | str, metadata: Mapping[str, Any] | None = None, session_id: str = ""
    ) -> None:
        """Queue one event for its subscribers. Never blocks, never raises; a no-op where nobody listens."""
        if not self._active:
            return
        if event_type not in self._callbacks:
            return
        event = Event(event_type, self._clock(), {} if metadata is None else metadata, session_id)
        with self._lock:
            if not self._closing and len(self._queue) < self._limit:
                self._queue.append(event)
                self._arrived.notify()
                return
        self._note_drop(event)

    def has_subscribers(self, event_type: EventType | str) -> bool:
        """Tell whether an event of this kind would reach anybody, so that its metadata is worth building."""
        return self._active and event_type in self._callbacks

    def register_subscriber(self, name: str, subscriber: EventSubscriber) -> None:
        """Let a subscriber see every event published from now on.

        Raises:
            RuntimeError: The name is taken, or the bus is stopped.
        """
        subscriptions = dict(subscriber.get_subscriptions())
        with self._lock:
            if self._closing:
                raise RuntimeError(f"event subscriber {name!r} came too late: the event bus is stopped")
            if any(name == taken for taken, _ in self._subscribers):
                raise RuntimeError(f"event subscriber {name!r} is registered already; choose another name")
            self._subscribers.append((name, subscriber))
            callbacks = dict(self._callbacks)
            for event_type, callback in subscriptions.items():
                callbacks[event_type] = (*callbacks.get(event_type, ()), (name, callback))
            self._callbacks = callbacks  # replaced whole: publish reads it without the lock
            if self._thread is None:
                self._thread = threading.Thread(target=self._drain, name="EventBus", daemon=True)
                self._thread.start()
            self._active = True

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Take no more events, deliver what waits, then call each `shutdown`, last registered first.

        Returns:
            False when a subscriber held that up for longer than `timeout_s`; it is left behind.
        """
        with self._lock:
            self._closing = True
            self._active = False
            self._arrived.notify()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        if thread.is_alive():
            log.warning(
                "event bus did not stop within %.1f s; a subscriber is stuck, %d events wait",
                timeout_s,
                len(self._queue),
            )
        return not thread.is_alive()

    def _note_drop(self, event: Event) -> None:
        self._metrics.events_dropped.inc()
        now_s = self._clock()
        if now_s - self._warned_s >= _WARNING_GAP_S:
            self._warned_s = now_s
            log.warning("event bus dropped %s: %d events wait, the most allowed", event.event_type, self._limit)

    def _drain(self) -> None:
        while (event := self._next()) is not None:
            for name, callback in self._callbacks.get(event.event_type, ()):
                self._call(name, callback, event)
        for name, subscriber in reversed(self._subscribers):
            self._call(name, subscriber.shutdown)

    def _next(self) -> Event | None:
        with self._lock:
            while not self._queue:
                if self._closing:
                    return None
                self._arrived.wait()
            return self._queue.popleft()

    def _call(self, name: str, callback: Callable[..., None], *args: Event) -> None:
        try:
            callback(*args)
        except BaseException as error:  # the border of one subscriber: nothing it raises may reach its siblings
            self._metrics.subscriber_errors.labels(name).inc()
            if name not in self._failing:
                self._failing.add(name)
                log.warning("event subscriber %s failed; its next errors are only counted", name, exc_info=error)
        else:
            self._failing.discard(name)
