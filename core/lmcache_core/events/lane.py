"""One subscriber's queue and thread on the bus."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from lmcache_core.contracts.event import Event, EventType

log = logging.getLogger(__name__)

_GATHER_S = 0.001
"""Pause of a lane that has caught up, before it has itself woken again: a wake-up costs the publisher three times
what an append does, so a busy publisher pays for one in a millisecond. An event after a pause is not delayed."""


class Lane:
    """Hands events to one subscriber, in order, on a daemon thread of its own.

    When the queue is full the new event is dropped and counted, and the subscriber is told so in the
    place where the event is missing. Drops that come while it is told of earlier ones are told together.

    Args:
        name: Of the subscriber.
        callbacks: Kind of event to callback.
        on_lost: Told how many events were dropped in a row.
        on_end: Called once after the last event.
        limit: Most events that wait at once; 0 to be told of drops only.
        rest_s: Pause after each call of `on_lost`.
    """

    def __init__(
        self,
        name: str,
        callbacks: Mapping[EventType | str, Callable[[Event], None]],
        *,
        on_lost: Callable[[int], None],
        on_end: Callable[[], None],
        limit: int,
        rest_s: float = 0.0,
    ) -> None:
        self.name = name
        self.callbacks = callbacks
        self.dropped = 0
        self.errors = 0
        self.drained = threading.Event()
        self._on_lost = on_lost
        self._on_end = on_end
        self._limit = limit
        self._rest_s = rest_s
        self._lock = threading.Lock()
        self._queue: deque[Event | int] = deque()
        self._in_hand: Event | None = None
        self._lost = 0
        self._idle = False
        self._closing = threading.Event()
        self._ready = threading.Lock()  # held but for the moment a wake-up takes
        self._ready.acquire()
        self._may_end = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=f"EventBus-{name}", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Events that wait."""
        return len(self._queue)

    def oldest_s(self) -> float | None:
        """When the oldest event came that is not done with; None where there is none."""
        for event in (self._in_hand, *self._peek()):
            if isinstance(event, Event):
                return event.timestamp
        return None

    def offer(self, event: Event) -> bool:
        """Queue an event; False when it was dropped. Never waits for the subscriber."""
        with self._lock:
            kept = len(self._queue) < self._limit
            if kept:
                if self._lost:
                    self._queue.append(self._lost)
                    self._lost = 0
                self._queue.append(event)
            else:
                self._lost += 1
                self.dropped += 1
            if self._idle:
                self._idle = False
                self._ready.release()
        return kept

    def close(self) -> None:
        """Take no more events; those that wait are delivered, then `drained` is set."""
        with self._lock:
            self._closing.set()
            self._limit = 0
            if self._idle:
                self._idle = False
                self._ready.release()

    def end(self, timeout_s: float) -> bool:
        """Let the drained lane do the last work; False when it is still at it after so long."""
        self._may_end.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def let_go(self) -> None:
        """Wait no longer for a stuck subscriber: whatever it returns to, its thread ends without a last call."""
        self._on_end = _do_nothing
        self._may_end.set()

    def _peek(self) -> tuple[Event | int, ...]:
        with self._lock:  # the head, and the event behind it where the head is a gap
            return tuple(self._queue[place] for place in range(min(2, len(self._queue))))

    def _run(self) -> None:
        while (event := self._next()) is not None:
            if type(event) is int:
                self._call(self._on_lost, event)
                self._closing.wait(self._rest_s)
                continue
            self._in_hand = event  # type: ignore[assignment]
            self._call(self.callbacks[event[0]], event)  # type: ignore[index]
            self._in_hand = None
        self.drained.set()
        self._may_end.wait()
        self._call(self._on_end)

    def _next(self) -> Event | int | None:
        rested = False
        while True:
            try:
                return self._queue.popleft()
            except IndexError:
                if not rested:
                    time.sleep(_GATHER_S)
                    rested = True
                    continue
            with self._lock:
                if self._queue:
                    continue
                if self._lost:
                    lost, self._lost = self._lost, 0
                    return lost
                if self._closing.is_set():
                    return None
                self._idle = True
            self._ready.acquire()
            rested = False

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except (
            BaseException
        ) as error:  # the border of one subscriber: nothing it raises, SystemExit included, may end the lane
            self.errors += 1
            if not self._failing:
                self._failing = True
                log.warning("event subscriber %s failed; its next errors are only counted", self.name, exc_info=error)
        else:
            self._failing = False


def _do_nothing() -> None:
    """Take the place of a last call that came too late."""
