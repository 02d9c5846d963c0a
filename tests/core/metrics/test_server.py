"""What a scrape shows of a cache server."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lmcache_core.metrics.server import ServerCollector, ServerTally


class ThreeClients:
    """A server as a scrape sees it."""

    def session_count(self) -> int:
        return 3

    def lease_counts(self) -> tuple[int, int]:
        return 2, 1

    def oldest_lease_s(self) -> float:
        return 612.0

    def slow_count(self) -> int:
        return 4


@pytest.fixture
def tally() -> ServerTally:
    tally = ServerTally()
    tally.of("ping").count_ok(20e-6)
    tally.of("ping").count_ok(30e-6)
    tally.of("lookup").count("refused", 60.0)
    tally.count_refusal("busy")
    tally.blocks_freed += 5
    tally.dropped_answers += 6
    tally.count_ended("memory")
    tally.count_ended("memory")
    return tally


def samples(tally: ServerTally) -> dict[tuple[str, tuple[str, ...]], float]:
    registry = CollectorRegistry()
    registry.register(ServerCollector(tally, ThreeClients()))
    text = generate_latest(registry).decode()
    return {
        (
            sample.name.removeprefix("lmcache:server_"),
            tuple(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_calls_are_counted_by_operation_and_outcome(tally: ServerTally) -> None:
    found = samples(tally)

    assert found["calls_total", ("ping", "ok")] == 2
    assert found["calls_total", ("lookup", "refused")] == 1


def test_refusals_are_counted_by_code(tally: ServerTally) -> None:
    assert samples(tally)["refused_messages_total", ("busy",)] == 1


def test_blocks_of_the_dead_are_counted(tally: ServerTally) -> None:
    assert samples(tally)["blocks_freed_by_death_total", ()] == 5


def test_dropped_answers_are_counted(tally: ServerTally) -> None:
    assert samples(tally)["dropped_answers_total", ()] == 6


def test_ended_connections_are_counted_by_why(tally: ServerTally) -> None:
    assert samples(tally)["ended_connections_total", ("memory",)] == 2


def test_times_are_in_buckets(tally: ServerTally) -> None:
    found = samples(tally)

    assert found["handling_seconds_bucket", ("1e-05", "ping")] == 0
    assert found["handling_seconds_bucket", ("2.5e-05", "ping")] == 1
    assert found["handling_seconds_bucket", ("5e-05", "ping")] == 2
    assert found["handling_seconds_bucket", ("10.0", "lookup")] == 0
    assert found["handling_seconds_bucket", ("+Inf", "lookup")] == 1
    assert found["handling_seconds_count", ("ping",)] == 2
    assert found["handling_seconds_sum", ("ping",)] == pytest.approx(50e-6)


def test_the_server_is_asked_at_each_scrape(tally: ServerTally) -> None:
    found = samples(tally)

    assert found["sessions", ()] == 3
    assert found["leases", ("fill",)] == 2
    assert found["leases", ("read",)] == 1
    assert found["oldest_lease_seconds", ()] == 612.0
    assert found["slow_calls", ()] == 4
