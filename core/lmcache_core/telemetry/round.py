"""Builds one interval's messages of one type, from values and from what is read now."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lmcache_core.contracts.message import REPORTER_FIELDS, UsageMessage
from lmcache_core.contracts.metric import MetricSpec
from lmcache_core.telemetry.guard import TelemetryLosses, swallow_telemetry_errors
from lmcache_core.telemetry.models import KnownModels
from lmcache_core.telemetry.probes import UsageProbe
from lmcache_core.telemetry.samples import Number, Series, reduce_values

_Tags = tuple[tuple[str, str], ...]


class MessageRound:
    """One type of message.

    Args:
        message: The type.
        probe: What reads the fields that events do not fill; None where there are none.
        models: Gives the tags as they may be reported.
    """

    def __init__(self, message: type[UsageMessage], probe: UsageProbe | None, models: KnownModels) -> None:
        self.message = message
        self.probed = frozenset(probe.missing) if probe is not None else frozenset[str]()
        self._probe = probe
        self._models = models
        self._stamped = {found.name for found in dataclasses.fields(message)} & REPORTER_FIELDS

    def messages(
        self,
        specs: Sequence[MetricSpec],
        taken: Sequence[tuple[Series, Sequence[Sequence[Number]]]],
        stamps: Mapping[str, Any],
        losses: TelemetryLosses,
    ) -> Iterator[UsageMessage]:
        """Give the interval's messages: one, or one for each combination of tags."""
        columns = self._merge(specs, taken)
        states = self._read(losses)
        every: dict[_Tags, None] = dict.fromkeys([*columns, *states] if self.message.TAGS else [()])
        missing = self._probe.missing if self._probe is not None else {}
        for tags in every:
            with swallow_telemetry_errors(losses, self.message.__name__):
                yield self.message(
                    **dict(tags),
                    **reduce_values(specs, columns.get(tags) or [[] for _ in specs]),
                    **states.get(tags, missing),
                    **{name: stamps[name] for name in self._stamped},
                )

    def _merge(
        self, specs: Sequence[MetricSpec], taken: Sequence[tuple[Series, Sequence[Sequence[Number]]]]
    ) -> dict[_Tags, list[list[Number]]]:
        """Put series together that are reported under the same tags."""
        merged: dict[_Tags, list[list[Number]]] = {}
        for series, values in taken:
            tags = tuple(self._models.tags(self.message, series).items())
            columns = merged.setdefault(tags, [[] for _ in specs])
            for column, more in zip(columns, values, strict=True):
                column.extend(more)
        return merged

    def _read(self, losses: TelemetryLosses) -> dict[_Tags, Mapping[str, Any]]:
        rows: dict[_Tags, Mapping[str, Any]] = {}
        if self._probe is None:
            return rows
        with swallow_telemetry_errors(losses, f"{self.message.__name__} probe"):
            for row in self._probe.read():
                tags = tuple((name, str(row[name])) for name in self.message.TAGS)
                rows[tags] = {name: row[name] for name in self._probe.missing}
        return rows
