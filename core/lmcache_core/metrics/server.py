"""How the calls of a cache server's clients fare, counted by its one control thread and read at each scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 5e-3, 25e-3, 100e-3, 1.0, 10.0)
"""Upper ends of the buckets: a ping takes some microseconds, a lookup in a slow store some seconds."""

_BUCKETS = (*map(str, BOUNDS_S), "+Inf")

OUTCOMES = ("ok", "refused", "failed", "forsaken")
"""What became of a call: served, refused, ended by a fault of the server, or no longer waited for."""


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


class CallTally:
    """Calls of one operation, by outcome, and how long they took. One thread writes, any may read."""

    __slots__ = ("buckets", "failed", "forsaken", "ok", "refused", "total_s")

    def __init__(self) -> None:
        self.ok = 0
        self.refused = 0
        self.failed = 0
        self.forsaken = 0
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def count_ok(self, seconds: float) -> None:
        """Count a call that was served; this runs once a call."""
        self.ok += 1
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def count(self, outcome: str, seconds: float) -> None:
        """Count a call that was not."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def outcomes(self) -> Iterator[tuple[str, int]]:
        """Give each outcome that there was, and how often."""
        for outcome in OUTCOMES:
            number = getattr(self, outcome)
            if number:
                yield outcome, number


class ServerTally:
    """Plain numbers. One thread writes, any may read; a scrape may be one call behind.

    Attributes:
        refused: By the code of the refusal.
        blocks_freed: Blocks taken back from clients that died.
        dropped_answers: Answers that a client did not take.
        ended_connections: By why the server ended them.
    """

    def __init__(self) -> None:
        self._calls: dict[str, CallTally] = {}
        self.refused: dict[str, int] = {}
        self.blocks_freed = 0
        self.dropped_answers = 0
        self.ended_connections: dict[str, int] = {}

    def of(self, operation: str) -> CallTally:
        """Give the tally of one operation."""
        return self._calls.setdefault(operation, CallTally())

    def count_refusal(self, code: str) -> None:
        """Count why a call, or a message that is none, was refused."""
        self.refused[code] = self.refused.get(code, 0) + 1

    def count_ended(self, reason: str) -> None:
        """Count why a connection was ended."""
        self.ended_connections[reason] = self.ended_connections.get(reason, 0) + 1

    def calls(self) -> Iterator[tuple[str, str, int]]:
        """Give operation, outcome and number of calls."""
        for operation, tally in list(self._calls.items()):
            for outcome, number in tally.outcomes():
                yield operation, outcome, number

    def handling(self) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
        """Give operation, cumulated buckets and sum of seconds, of each operation that was asked for."""
        for operation, tally in list(self._calls.items()):
            counts = tuple(accumulate(tally.buckets))
            if counts[-1]:
                yield operation, list(zip(_BUCKETS, map(float, counts), strict=True)), tally.total_s


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
        for operation, outcome, number in self._tally.calls():
            calls.add_metric((operation, outcome), number)
        yield calls
        refused = CounterMetricFamily(
            "lmcache:server_refused_messages", "Messages of clients that were refused, by why", labels=("code",)
        )
        for code, number in list(self._tally.refused.items()):
            refused.add_metric((code,), number)
        yield refused
        yield CounterMetricFamily(
            "lmcache:server_dropped_answers",
            "Answers dropped, as their client took none of those before or its connection had ended",
            value=self._tally.dropped_answers,
        )
        ended = CounterMetricFamily(
            "lmcache:server_ended_connections", "Connections that the server ended, by why", labels=("reason",)
        )
        for reason, number in list(self._tally.ended_connections.items()):
            ended.add_metric((reason,), number)
        yield ended
        yield CounterMetricFamily(
            "lmcache:server_blocks_freed_by_death",
            "Blocks taken back from clients that died or were dropped",
            value=self._tally.blocks_freed,
        )
