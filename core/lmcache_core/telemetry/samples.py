"""Values of one interval, from events, waiting to be reduced. Bounded from the first one on."""

from __future__ import annotations

import dataclasses
import math
import numbers
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmcache_core.contracts.event import Event, EventType
from lmcache_core.contracts.message import REPORTER_FIELDS, UsageMessage
from lmcache_core.contracts.metric import MetricSpec
from lmcache_core.telemetry.guard import TelemetryLosses, note_telemetry_error

MAX_BUFFERED_SAMPLES = 65_536  # LMCache's bound
MOST_SERIES = 64
"""Combinations of tags of one message that are told apart; what comes later is one more, ``other``."""

OTHER = "other"
_FOLD_SAMPLES = 1_024

Number = int | float
Series = tuple[object, ...]
"""The tags of one series as the events have them."""


def check_cover(message: type[UsageMessage], specs: Sequence[MetricSpec], probed: frozenset[str] = frozenset()) -> None:
    """See that specs and probes fill each field of a message once.

    Raises:
        ValueError: Names the fields that nobody fills, those that the message does not have, and those filled twice.
    """
    wanted = {found.name for found in dataclasses.fields(message)} - REPORTER_FIELDS - set(message.TAGS)
    given = [*(spec.field for spec in specs), *probed]
    faults = [
        ("nothing fills", sorted(wanted - set(given))),
        ("not to be filled", sorted(set(given) - wanted)),
        ("filled twice", sorted({name for name in given if given.count(name) > 1})),
    ]
    if any(fields for _, fields in faults):
        text = "; ".join(f"{fault}: {', '.join(fields)}" for fault, fields in faults if fields)
        raise ValueError(f"metric specs of usage message {message.__name__}: {text}")


class SampleBuffer:
    """Values of one field of one series.

    Args:
        reduce: Of the spec.
        limit: Most values kept, where they cannot be folded.
    """

    __slots__ = ("_reduce", "bound", "folds", "values")

    def __init__(self, reduce: Callable[[Sequence[Number]], Any], limit: int) -> None:
        self._reduce = reduce
        self.folds = reduce is sum
        self.bound = min(limit, _FOLD_SAMPLES) if self.folds else limit
        self.values: list[Number] = []

    def fold(self) -> None:
        """Put the sum in place of the values."""
        self.values[:] = [self._reduce(self.values)]


class MessageSamples:
    """All values of one message type, by series.

    Args:
        message: The type.
        specs: Its specs.
        limit: Most values kept for one field, all series together.
    """

    def __init__(self, message: type[UsageMessage], specs: Sequence[MetricSpec], limit: int) -> None:
        self.message = message
        self.specs = tuple(specs)
        self._limit = max(1, limit // MOST_SERIES) if message.TAGS else limit
        self._series: dict[Series, list[SampleBuffer]] = {}
        self._single = None if message.TAGS else self._open(())

    def buffers(self, event: Event) -> list[SampleBuffer]:
        """Find where an event's values go, in the order of the specs."""
        if self._single is not None:
            return self._single
        metadata = event.metadata
        series = tuple([metadata.get(tag) for tag in self.message.TAGS])
        found = self._series.get(series)
        return self._open(series) if found is None else found

    def take(self) -> list[tuple[Series, list[list[Number]]]]:
        """Take the interval's values of every series seen so far; an idle one has none."""
        taken = []
        for series, buffers in self._series.items():
            taken.append((series, [buffer.values for buffer in buffers]))
            for buffer in buffers:
                buffer.values = []
        return taken

    def _open(self, series: Series) -> list[SampleBuffer]:
        if len(self._series) >= MOST_SERIES:
            series = (OTHER,) * len(self.message.TAGS)
        if series not in self._series:
            self._series[series] = [SampleBuffer(spec.reduce, self._limit) for spec in self.specs]
        return self._series[series]


class SampleCollector:
    """Maps events to values: each spec for itself, so that one that raises never starves its siblings.

    Events come on one thread, `take` on another.

    Args:
        groups: The message types.
        losses: Where errors and values that were not kept are counted.
        on_full: Told, on the events' thread, that a buffer is full.
    """

    def __init__(self, groups: Sequence[MessageSamples], losses: TelemetryLosses, on_full: Callable[[], None]) -> None:
        self.groups = tuple(groups)
        self._losses = losses
        self._on_full = on_full
        self._lock = threading.Lock()
        self._plan: dict[EventType | str, list[tuple[MessageSamples, list[tuple[int, MetricSpec]]]]] = {}
        for group in self.groups:
            for kind in dict.fromkeys(spec.event_type for spec in group.specs):
                places = [(place, spec) for place, spec in enumerate(group.specs) if spec.event_type == kind]
                self._plan.setdefault(kind, []).append((group, places))

    @property
    def event_types(self) -> tuple[EventType | str, ...]:
        """Kinds of event that any spec wants."""
        return tuple(self._plan)

    def add(self, event: Event) -> None:
        """Extract and keep an event's values."""
        for group, places in self._plan[event.event_type]:
            buffers: list[SampleBuffer] | None = None
            for place, spec in places:
                try:
                    if buffers is None:
                        with self._lock:
                            buffers = group.buffers(event)
                    value = spec.extract(event)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the border of one spec
                    note_telemetry_error(self._losses, f"{group.message.__name__}.{spec.field}", error)
                    continue
                if type(value) is int:
                    self._keep(buffers[place], value)
                elif value is not None:
                    self._keep_all(buffers[place], value)

    def take(self) -> list[tuple[MessageSamples, list[tuple[Series, list[list[Number]]]]]]:
        """Take all values of the interval."""
        with self._lock:
            return [(group, group.take()) for group in self.groups]

    def _keep(self, buffer: SampleBuffer, value: Number) -> None:
        full = False
        with self._lock:
            values = buffer.values
            values.append(value)
            if len(values) >= buffer.bound:
                if buffer.folds:
                    buffer.fold()
                else:
                    full = True
                    if len(values) > buffer.bound:
                        values.pop()
                        self._losses.add_samples("full")
        if full:
            self._on_full()

    def _keep_all(self, buffer: SampleBuffer, value: object) -> None:
        for one in value if isinstance(value, list | tuple) else (value,):
            number = _number(one)
            if isinstance(number, str):
                self._losses.add_samples(number)
            else:
                self._keep(buffer, number)


def _number(value: object) -> Number | str:
    """Give a value as a plain number, or why it is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return "not_a_number"
    if isinstance(value, numbers.Integral):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else "not_finite"


def reduce_values(specs: Sequence[MetricSpec], columns: Sequence[Sequence[Number]]) -> Mapping[str, Any]:
    """Reduce each spec's values to the value of its field.

    Raises:
        ValueError: A spec's reduce raised; names message and field.
    """
    fields: dict[str, Any] = {}
    for spec, values in zip(specs, columns, strict=True):
        try:
            fields[spec.field] = spec.reduce(values)
        except (Exception, SystemExit) as error:  # noqa: PERF203 - names the spec that is wrong
            raise ValueError(f"{spec.message.__name__}.{spec.field}: reduce raised {type(error).__name__}") from error
    return fields
