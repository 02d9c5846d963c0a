"""How the calls of a cache server's clients fare, counted by its one control thread and read at each scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 5e-3, 25e-3, 100e-3, 1.0, 10.0)
"""Upper ends of the buckets: a ping takes some microseconds, a lookup in a slow store some seconds."""


class ServerView(Protocol):
    """What a scrape reads of a server beside its tally."""

    def session_count(self) -> int:
        """Sessions that are open."""

    def lease_counts(self) -> tuple[int, int]:
        """Reservations that are being filled, and leases that are being read."""

    def oldest_lease_s(self) -> float:
        """Seconds that the oldest of them has been out; 0 for none."""

    def slow_count(self) -> int:
        """Calls that wait for further tiers."""


class ServerTally:
    """Plain numbers. One thread writes, any may read; a scrape may be one call behind.

    Attributes:
        calls: By operation and outcome: ``ok``, ``refused``, ``failed`` or ``forsaken``.
        refused: By the code of the refusal.
        blocks_freed: Blocks taken back from clients that died.
    """

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], int] = {}
        self.refused: dict[str, int] = {}
        self.blocks_freed = 0
        self._handling: dict[str, list[float]] = {}

    def count(self, operation: str, outcome: str, seconds: float) -> None:
        """Count one call and the time it took here."""
        key = (operation, outcome)
        self.calls[key] = self.calls.get(key, 0) + 1
        row = self._handling.get(operation)
        if row is None:
            row = self._handling[operation] = [0] * (len(BOUNDS_S) + 2)
        row[bisect_left(BOUNDS_S, seconds)] += 1
        row[-1] += seconds

    def count_refusal(self, code: str) -> None:
        """Count why a call, or a message that is none, was refused."""
        self.refused[code] = self.refused.get(code, 0) + 1

    def handling(self) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
        """Give operation, cumulated buckets and sum of seconds, of each operation."""
        for operation, row in list(self._handling.items()):
            total = 0.0
            buckets = []
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), row, strict=False):
                total += count
                buckets.append((bound, total))
            yield operation, buckets, row[-1]


class ServerCollector(Collector):
    """Shows a tally and the server around it. Any thread may scrape.

    Args:
        tally: Of the control thread.
        server: Asked at each scrape; None for the names alone.
    """

    def __init__(self, tally: ServerTally, server: ServerView | None = None) -> None:
        self._tally = tally
        self._server = server

    def describe(self) -> Iterable[Metric]:
        """Name the families without asking the server; used to find clashes at registration."""
        return ServerCollector(ServerTally()).collect()

    def collect(self) -> Iterator[Metric]:
        """Read everything now."""
        yield from self._gauges()
        yield from self._counters()
        handling = HistogramMetricFamily(
            "lmcache:server_handling_seconds",
            "Seconds from a call's arrival at the server to its answer",
            labels=("operation",),
        )
        for operation, buckets, total_s in self._tally.handling():
            handling.add_metric((operation,), buckets, total_s)
        yield handling

    def _gauges(self) -> Iterator[Metric]:
        server = self._server
        reserved, lent = server.lease_counts() if server else (0, 0)
        yield GaugeMetricFamily(
            "lmcache:server_sessions",
            "Sessions of clients that are open",
            value=server.session_count() if server else 0,
        )
        leases = GaugeMetricFamily(
            "lmcache:server_leases", "Leases that clients hold on blocks, by what for", labels=("kind",)
        )
        leases.add_metric(("fill",), reserved)
        leases.add_metric(("read",), lent)
        yield leases
        yield GaugeMetricFamily(
            "lmcache:server_oldest_lease_seconds",
            "Seconds that the oldest lease of a client has been out; 0 for none",
            value=server.oldest_lease_s() if server else 0,
        )
        yield GaugeMetricFamily(
            "lmcache:server_slow_calls",
            "Calls that wait for tiers behind tier 0",
            value=server.slow_count() if server else 0,
        )

    def _counters(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(
            "lmcache:server_calls", "Calls of clients, by outcome", labels=("operation", "outcome")
        )
        for labels, number in list(self._tally.calls.items()):
            calls.add_metric(labels, number)
        yield calls
        refused = CounterMetricFamily(
            "lmcache:server_refused_messages", "Messages of clients that were refused, by why", labels=("code",)
        )
        for code, number in list(self._tally.refused.items()):
            refused.add_metric((code,), number)
        yield refused
        yield CounterMetricFamily(
            "lmcache:server_blocks_freed_by_death",
            "Blocks taken back from clients that died or were dropped",
            value=self._tally.blocks_freed,
        )
