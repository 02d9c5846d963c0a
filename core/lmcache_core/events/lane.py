"""One subscriber's queue and thread on the bus."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from lmcache_core.contracts.event import Event, EventType

log = logging.getLogger(__name__)

_GATHER_S = 0.001
"""Pause of a lane that has caught up, before it has itself woken again: a wake-up costs the publisher three times
what an append does, so a busy publisher pays for one in a millisecond. An event after a pause is not delayed."""


Item = tuple[EventType | str, float, Mapping[str, Any], str]
"""An event's parts. It becomes an `Event` on the lane's thread: a plain tuple costs the publisher a third."""


class Lane:
    """Hands events to one subscriber, in order, on a daemon thread of its own.

    When the queue is full the new event is dropped and counted, and the subscriber is told so in the
    place where the event is missing. Drops that come while it is told of earlier ones are told together.

    A publisher appends without a lock where there is room, and then looks whether the lane is idle; the
    lane says that it is idle, and then looks whether there is something in the queue. So one of the two
    sees the other. Publishers that append in the same moment may exceed the limit, by one each.

    Args:
        name: Of the subscriber.
        callbacks: Kind of event to callback.
        on_lost: Told how many events were dropped in a row.
        on_end: Called once after the last event.
        limit: Most events that wait at once; 0 to be told of drops only.
        rest_s: Pause after each call of `on_lost`.

    Attributes:
        queue: What waits: events' parts, and counts of dropped ones in their places.
        limit: Most events that wait at once; 0 when closed.
        lost: Dropped since the last gap was marked; `offer` marks it.
        idle: Whether `wake` is needed.
        dropped: Events that found the queue full.
        errors: Exceptions of the subscriber.
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
        self.queue: deque[Item | int] = deque()
        self.limit = limit
        self.lost = 0
        self.idle = False
        self.dropped = 0
        self.errors = 0
        self.drained = threading.Event()
        self._callbacks = callbacks
        self._on_lost = on_lost
        self._on_end = on_end
        self._rest_s = rest_s
        self._lock = threading.Lock()
        self._in_hand: Item | None = None
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
        return len(self.queue)

    @property
    def is_alive(self) -> bool:
        """Whether its thread is."""
        return self._thread.is_alive()

    def oldest_s(self) -> float | None:
        """When the oldest event came that is not done with; None where there is none."""
        in_hand = self._in_hand
        if in_hand is not None:
            return in_hand[1]
        for item in tuple(self.queue.copy()):
            if not isinstance(item, int):
                return item[1]
        return None

    def offer(self, item: Item) -> bool:
        """Queue an event, with a gap before it where some are missing; False when it was dropped. Never waits."""
        with self._lock:
            kept = len(self.queue) < self.limit
            if kept:
                if self.lost:
                    self.queue.append(self.lost)
                    self.lost = 0
                self.queue.append(item)
            else:
                self.lost += 1
                self.dropped += 1
            self._wake()
        return kept

    def wake(self) -> None:
        """Have the lane look at its queue."""
        with self._lock:
            self._wake()

    def close(self) -> None:
        """Take no more events; those that wait are delivered, then `drained` is set."""
        with self._lock:
            self._closing.set()
            self.limit = 0
            self._wake()

    def end(self, timeout_s: float) -> bool:
        """Let the drained lane do the last work; False when it is still at it after so long."""
        self._may_end.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def let_go(self) -> None:
        """Wait no longer for a stuck subscriber: whatever it returns to, its thread ends without a last call."""
        self._on_end = _do_nothing
        self._may_end.set()

    def _wake(self) -> None:
        if self.idle:
            self.idle = False
            self._ready.release()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, int):
                self._call(self._on_lost, item)
                self._closing.wait(self._rest_s)
                continue
            self._in_hand = item
            self._call(self._callbacks[item[0]], Event._make(item))
            self._in_hand = None
        self.drained.set()
        self._may_end.wait()
        self._call(self._on_end)

    def _next(self) -> Item | int | None:
        rested = False
        while True:
            try:
                return self.queue.popleft()
            except IndexError:
                if not rested:
                    time.sleep(_GATHER_S)
                    rested = True
                    continue
            with self._lock:
                if self.lost and not self.queue:
                    lost, self.lost = self.lost, 0
                    return lost
                if self._closing.is_set() and not self.queue:
                    return None
                self.idle = True
                if self.queue:
                    self.idle = False
                    continue
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
