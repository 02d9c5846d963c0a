"""How the subscribers of the event bus fare, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_LABEL = ("subscriber",)


class LaneView(Protocol):
    """What a scrape reads of one subscriber."""

    @property
    def name(self) -> str:
        """Of the subscriber."""

    @property
    def depth(self) -> int:
        """Events that wait for it."""

    @property
    def dropped(self) -> int:
        """Events that found its queue full."""

    @property
    def errors(self) -> int:
        """Exceptions it raised."""


class BusView(Protocol):
    """Where a scrape finds the subscribers."""

    def lanes(self) -> Sequence[LaneView]:
        """All subscribers."""

    def lag_s(self, lane: Any) -> float:
        """Seconds that the oldest event has waited."""


class EventBusCollector(Collector):
    """Depth, lag, drops and errors by subscriber. Publishing pays nothing for them. Any thread may scrape.

    Args:
        bus: Of the cache instance; asked at each scrape.
    """

    def __init__(self, bus: BusView) -> None:
        self._bus = bus

    def describe(self) -> Iterable[Metric]:
        """Name the families without asking the bus; used to find clashes at registration."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Read all subscribers now."""
        return self._families(self._bus.lanes())

    def _families(self, lanes: Sequence[LaneView]) -> Iterable[Metric]:
        depth = GaugeMetricFamily("lmcache:event_bus_queue_depth", "Events that wait for a subscriber", labels=_LABEL)
        lag = GaugeMetricFamily(
            "lmcache:event_bus_drain_lag_seconds",
            "Seconds the oldest event has waited that a subscriber is not done with",
            labels=_LABEL,
        )
        dropped = CounterMetricFamily(
            "lmcache:event_bus_dropped_events", "Events that found a subscriber's queue full", labels=_LABEL
        )
        errors = CounterMetricFamily(
            "lmcache:event_bus_subscriber_exceptions", "Exceptions that a subscriber raised", labels=_LABEL
        )
        for lane in lanes:
            depth.add_metric((lane.name,), lane.depth)
            lag.add_metric((lane.name,), self._bus.lag_s(lane))
            dropped.add_metric((lane.name,), lane.dropped)
            errors.add_metric((lane.name,), lane.errors)
        return (depth, lag, dropped, errors)
