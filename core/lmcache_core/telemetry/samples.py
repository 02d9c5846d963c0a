"""Values of one interval, from events, waiting to be reduced. Bounded from the first one on."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lmcache_core.contracts.event import Event
from lmcache_core.contracts.message import REPORTER_FIELDS, UsageMessage
from lmcache_core.contracts.metric import MetricSpec

MAX_BUFFERED_SAMPLES = 65_536  # LMCache's bound
MOST_SERIES = 64
"""Combinations of tags of one message that are told apart; what comes later is one more, ``other``."""

OTHER = "other"
DERIVED_TAGS = frozenset({"attn_arch"})
"""Tags that follow from others and are not looked for in events."""

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


def event_tags(message: type[UsageMessage]) -> tuple[str, ...]:
    """Name the tags that a message's series are told apart by, as the events have them."""
    return tuple(tag for tag in message.TAGS if tag not in DERIVED_TAGS)


class SampleBuffer:
    """Values of one field of one series.

    Args:
        reduce: Of the spec. Python's own `sum` is folded: its values never exceed a few and none is lost.
        limit: Most values kept, where they cannot be folded.
    """

    __slots__ = ("_folds", "_limit", "values")

    def __init__(self, reduce: Callable[[Sequence[Number]], Any], limit: int) -> None:
        self._folds = reduce is sum
        self._limit = max(2, min(limit, _FOLD_SAMPLES)) if self._folds else limit
        self.values: list[Number] = []

    @property
    def is_full(self) -> bool:
        """Whether there is no room; never, where values are folded."""
        return not self._folds and len(self.values) >= self._limit

    def extend(self, values: Sequence[Number]) -> int:
        """Keep values; give how many there was no room for."""
        if self._folds:
            self.values.append(sum(values))
            if len(self.values) >= self._limit:
                self.values[:] = [sum(self.values)]
            return 0
        room = self._limit - len(self.values)
        self.values.extend(values[:room])
        return max(0, len(values) - room)


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
        self._tags = event_tags(message)
        self._limit = max(1, limit // MOST_SERIES) if message.TAGS else limit
        self._series: dict[Series, list[SampleBuffer]] = {}
        self._single = None if message.TAGS else self._open(())

    def split(self, events: Sequence[Event]) -> Iterator[tuple[list[SampleBuffer], list[int] | None]]:
        """Find where events' values go: buffers in the order of the specs, and which events; None for all."""
        if self._single is not None:
            yield self._single, None
            return
        columns = [[event.metadata.get(tag) for event in events] for tag in self._tags]
        if all(len(set(column)) == 1 for column in columns):
            yield self._open(tuple([column[0] for column in columns])), None
            return
        places: dict[Series, list[int]] = {}
        for place, key in enumerate(zip(*columns, strict=True)):
            places.setdefault(key, []).append(place)
        for key, where in places.items():
            yield self._open(key), where

    def take(self) -> list[tuple[Series, list[list[Number]]]]:
        """Take the interval's values of every series seen so far; an idle one has none."""
        taken = []
        for series, buffers in self._series.items():
            taken.append((series, [buffer.values for buffer in buffers]))
            for buffer in buffers:
                buffer.values = []
        return taken

    def _open(self, series: Series) -> list[SampleBuffer]:
        found = self._series.get(series)
        if found is not None:
            return found
        if len(self._series) >= MOST_SERIES:
            series = (OTHER,) * len(self._tags)
        return self._series.setdefault(series, [SampleBuffer(spec.reduce, self._limit) for spec in self.specs])


def as_numbers(value: object) -> Iterator[Number | str]:
    """Give an extracted value as plain numbers, or as the reason why it is none: several where it is a list."""
    for one in value if isinstance(value, list | tuple) else (value,):
        yield _number(one)


def _number(value: object) -> Number | str:
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
