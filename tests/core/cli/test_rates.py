"""Rates from two statuses."""

from __future__ import annotations

from typing import Any

from tests.core.cli.server_status import status_document

from lmcache_core.cli.rates import RateMeter, Rates, rates_between


def later(document: dict[str, Any], seconds: float, **added: int) -> dict[str, Any]:
    counters = {name: value + added.get(name, 0) for name, value in document["counters"].items()}
    return {**document, "uptime_s": document["uptime_s"] + seconds, "counters": counters}


def test_a_rate_is_a_difference_over_the_servers_own_time() -> None:
    first = status_document()
    second = later(
        first,
        2.0,
        calls=10,
        refused_calls=1,
        requested_tokens=1000,
        hit_tokens=750,
        retrieved_tokens=700,
        stored_tokens=200,
        retrieved_bytes=7_000,
        stored_bytes=2_000,
    )

    assert rates_between(first, second) == Rates(
        calls=5.0,
        refused=0.5,
        requested_tokens=500.0,
        retrieved_tokens=350.0,
        stored_tokens=100.0,
        retrieved_bytes=3_500.0,
        stored_bytes=1_000.0,
        hit_share=0.75,
    )


def test_without_lookups_there_is_no_hit_rate() -> None:
    first = status_document()

    assert rates_between(first, later(first, 1.0)).hit_share is None


def test_a_server_that_was_started_again_begins_anew() -> None:
    meter = RateMeter()
    first = status_document()
    meter.take(first)
    meter.take(later(first, 1.0, calls=5))
    again = {**first, "boot_id": "another", "uptime_s": 0.1}

    assert meter.take(again) == Rates()
    assert not meter.history
    assert meter.take(later(again, 1.0, calls=3)).calls == 3.0


def test_no_time_and_no_counters_are_no_rates() -> None:
    first = status_document()

    assert rates_between(first, first) == Rates()
    assert rates_between({"uptime_s": 1.0}, {"uptime_s": 2.0, "counters": [1]}) == Rates()


def test_a_counter_that_goes_back_has_no_rate() -> None:
    first = status_document()

    assert rates_between(first, later(first, 1.0, calls=-1)).calls is None
