"""Maps events to values, a batch at a time; a spec that raises never starves its siblings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from lmcache_core.contracts.event import Event, EventType
from lmcache_core.contracts.metric import MetricSpec
from lmcache_core.telemetry.guard import TelemetryLosses, note_telemetry_error
from lmcache_core.telemetry.samples import MessageSamples, Number, SampleBuffer, Series, as_numbers

_BATCH_EVENTS = 256
_PATIENCE_S = 1.0
"""Longest a flush waits for a batch that is being mapped; if an `extract` hangs, the interval goes without it."""

Column = tuple[list[object], bool]
"""What one extract gave for a batch, None for no value; and whether all of it is whole numbers."""

Taken = tuple[MessageSamples, list[tuple[Series, list[list[Number]]]]]
"""A message's values of one interval, by series and spec."""


class EventFeed:
    """Events of one kind, on their way to values. One thread adds; any may drain.

    Args:
        groups: Those with specs for the kind.
        kind: The kind of event.
        losses: Where errors and values that were not kept are counted.
        on_full: Told that a buffer is full.
        lock: Guards the buffers of the groups.
    """

    def __init__(
        self,
        groups: Sequence[MessageSamples],
        kind: EventType | str,
        *,
        losses: TelemetryLosses,
        on_full: Callable[[], None],
        lock: threading.Lock,
    ) -> None:
        self._losses = losses
        self._on_full = on_full
        self._lock = lock
        self._working = threading.Lock()
        self._pending: list[Event] = []
        self._extracts: dict[Callable[[Event], object], MetricSpec] = {}
        self._plan: list[tuple[MessageSamples, list[tuple[int, int]]]] = []
        for group in groups:
            places = [(place, spec) for place, spec in enumerate(group.specs) if spec.event_type == kind]
            for _, spec in places:
                self._extracts.setdefault(spec.extract, spec)
            numbers = {extract: number for number, extract in enumerate(self._extracts)}
            self._plan.append((group, [(place, numbers[spec.extract]) for place, spec in places]))

    def add(self, event: Event) -> None:
        """Take an event; a full batch is mapped at once."""
        pending = self._pending
        pending.append(event)
        if len(pending) >= _BATCH_EVENTS:
            self.drain()

    def drain(self) -> None:
        """Map what is pending."""
        if not self._working.acquire(timeout=_PATIENCE_S):
            return
        try:
            events = self._pending[:]
            del self._pending[: len(events)]  # what came in between stays
            if events:
                self._map(events)
        finally:
            self._working.release()

    def _map(self, events: Sequence[Event]) -> None:
        columns = [self._column(extract, spec, events) for extract, spec in self._extracts.items()]
        full = False
        with self._lock:
            for group, places in self._plan:
                try:
                    for buffers, where in group.split(events):
                        for place, number in places:
                            full |= self._keep(buffers[place], columns[number], where)
                except (Exception, SystemExit) as error:  # noqa: BLE001, PERF203 - the border of one message: tags are the events'
                    note_telemetry_error(self._losses, group.message.__name__, error)
        if full:
            self._on_full()

    def _column(self, extract: Callable[[Event], object], spec: MetricSpec, events: Sequence[Event]) -> Column:
        try:
            values = [extract(event) for event in events]
        except (Exception, SystemExit):  # noqa: BLE001 - one event is wrong: below, each for itself
            values = [self._extract(extract, spec, event) for event in events]
        return values, set(map(type, values)) == {int}

    def _extract(self, extract: Callable[[Event], object], spec: MetricSpec, event: Event) -> object:
        try:
            return extract(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the border of one spec
            note_telemetry_error(self._losses, f"{spec.message.__name__}.{spec.field}", error)
            return None

    def _keep(self, buffer: SampleBuffer, column: Column, where: Sequence[int] | None) -> bool:
        values, plain = column
        chosen = values if where is None else [values[place] for place in where]
        numbers: list[Number] = chosen if plain else self._numbers(chosen)  # type: ignore[assignment]
        refused = buffer.extend(numbers)
        if refused:
            self._losses.add_samples("full", refused)
        return buffer.is_full

    def _numbers(self, values: Sequence[object]) -> list[Number]:
        found: list[Number] = []
        for value in values:
            for number in () if value is None else as_numbers(value):
                if isinstance(number, str):
                    self._losses.add_samples(number)
                else:
                    found.append(number)
        return found


class SampleCollector:
    """The values of all messages.

    Args:
        groups: The message types.
        losses: Where errors and values that were not kept are counted.
        on_full: Told that a buffer is full.
    """

    def __init__(self, groups: Sequence[MessageSamples], losses: TelemetryLosses, on_full: Callable[[], None]) -> None:
        self._groups = tuple(groups)
        self._lock = threading.Lock()
        kinds = dict.fromkeys(spec.event_type for group in groups for spec in group.specs)
        self.feeds: Mapping[EventType | str, EventFeed] = {
            kind: EventFeed(
                [group for group in groups if any(spec.event_type == kind for spec in group.specs)],
                kind,
                losses=losses,
                on_full=on_full,
                lock=self._lock,
            )
            for kind in kinds
        }

    def take(self) -> list[Taken]:
        """Take all values of the interval."""
        for feed in self.feeds.values():
            feed.drain()
        with self._lock:
            return [(group, group.take()) for group in self._groups]
