"""Map: each spec for itself; bounded from the first event on."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core import Event, EventType, MetricSpec, UsageMessage
from lmcache_core.telemetry.collect import SampleCollector
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.telemetry.samples import MOST_SERIES, MessageSamples, reduce_values

STORE = EventType.MP_STORE_END


@dataclass(frozen=True)
class AcmeMessage(UsageMessage):
    a: int
    b: int
    sequence_number: int


@dataclass(frozen=True)
class TaggedMessage(UsageMessage):
    TAGS: ClassVar[tuple[str, ...]] = ("model_name",)

    model_name: str
    a: int


def spec(field: str, reduce: Any = sum, message: type[UsageMessage] = AcmeMessage, extract: Any = None) -> MetricSpec:
    return MetricSpec(STORE, field, extract or (lambda event: event.metadata[field]), reduce, message)


def collector_of(
    specs: list[MetricSpec], losses: TelemetryLosses, limit: int = 100, on_full: Any = None
) -> SampleCollector:
    group = MessageSamples(specs[0].message, specs, limit)
    return SampleCollector([group], losses, on_full or (lambda: None))


def taken(collector: SampleCollector) -> dict[Any, dict[str, Any]]:
    ((group, series),) = collector.take()
    return {tags: dict(reduce_values(group.specs, columns)) for tags, columns in series}


def event(**metadata: object) -> Event:
    return Event(STORE, 0.0, metadata)


def test_values_are_mapped_and_reduced(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a"), spec("b", max)], losses)
    for number in (1, 2, 3):
        collector.feeds[STORE].add(event(a=number, b=number))

    assert taken(collector) == {(): {"a": 6, "b": 3}}


def test_none_skips(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a", len, extract=lambda _event: None)], losses)
    collector.feeds[STORE].add(event())

    assert (taken(collector), losses.errors) == ({(): {"a": 0}}, 0)


def test_an_interval_is_taken_once(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a")], losses)
    collector.feeds[STORE].add(event(a=5))

    assert (taken(collector), taken(collector)) == ({(): {"a": 5}}, {(): {"a": 0}})


def test_a_bad_extract_never_starves_its_siblings(losses: TelemetryLosses) -> None:
    """D.15"""
    collector = collector_of([spec("a"), spec("b")], losses)
    for _ in range(3):
        collector.feeds[STORE].add(event(b=1))

    assert taken(collector) == {(): {"a": 0, "b": 3}}
    assert dict(losses.errors_by_place()) == {"AcmeMessage.a": 3}


def test_an_extract_that_ends_the_process_does_not(losses: TelemetryLosses) -> None:
    def leave(_event: Event) -> int:
        raise SystemExit(3)

    collector = collector_of([spec("a", extract=leave)], losses)
    collector.feeds[STORE].add(event())

    assert (taken(collector), losses.errors) == ({(): {"a": 0}}, 1)


def test_several_values_of_one_event_count_each(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a", len)], losses)
    collector.feeds[STORE].add(event(a=[1, 2.5, 3]))

    assert taken(collector) == {(): {"a": 3}}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, "not_a_number"),
        ("1", "not_a_number"),
        (math.nan, "not_finite"),
        (math.inf, "not_finite"),
        (1j, "not_a_number"),
    ],
)
def test_what_is_no_finite_number_is_dropped_and_counted(losses: TelemetryLosses, value: object, reason: str) -> None:
    collector = collector_of([spec("a")], losses)
    collector.feeds[STORE].add(event(a=value))

    assert (taken(collector), dict(losses.samples_by_reason())) == ({(): {"a": 0}}, {reason: 1})


def test_the_bound_holds_where_values_cannot_be_folded(losses: TelemetryLosses) -> None:
    """D.14: from the first value on, with nobody taking any."""
    full: list[int] = []
    collector = collector_of([spec("a", len)], losses, limit=100, on_full=lambda: full.append(1))
    for _ in range(50_000):
        collector.feeds[STORE].add(event(a=1))

    assert taken(collector) == {(): {"a": 100}}
    assert dict(losses.samples_by_reason()) == {"full": 49_900}
    assert full


def test_sums_lose_nothing(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a")], losses, limit=100)
    for _ in range(50_000):
        collector.feeds[STORE].add(event(a=3))

    assert (taken(collector), losses.samples) == ({(): {"a": 150_000}}, 0)


def test_specs_that_share_a_function_share_its_result(losses: TelemetryLosses) -> None:
    calls: list[int] = []

    def extract(_event: Event) -> int:
        calls.append(1)
        return 5

    collector = collector_of([spec("a", extract=extract), spec("b", extract=extract)], losses)
    for _ in range(10):
        collector.feeds[STORE].add(event())

    assert (taken(collector), len(calls)) == ({(): {"a": 50, "b": 50}}, 10)


def test_tags_that_cannot_be_tags_cost_their_message_alone(losses: TelemetryLosses) -> None:
    groups = [
        MessageSamples(TaggedMessage, [spec("a", message=TaggedMessage)], 100),
        MessageSamples(AcmeMessage, [spec("a")], 100),
    ]
    collector = SampleCollector(groups, losses, lambda: None)
    collector.feeds[STORE].add(event(a=1, model_name=[]))
    (_, tagged), (_, plain) = collector.take()

    assert (tagged, plain) == ([], [((), [[1]])])
    assert dict(losses.errors_by_place()) == {"TaggedMessage": 1}


def test_an_extract_that_hangs_costs_a_flush_its_patience_and_no_more(losses: TelemetryLosses) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hang(_event: Event) -> int:
        entered.set()
        go_on.wait(30)
        return 1

    collector = collector_of([spec("a", extract=hang)], losses)
    collector.feeds[STORE].add(event())
    thread = threading.Thread(target=collector.feeds[STORE].drain)
    thread.start()
    assert entered.wait(10)
    during = taken(collector)
    go_on.set()
    thread.join(10)

    assert (during, taken(collector)) == ({(): {"a": 0}}, {(): {"a": 1}})


@given(st.lists(st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6)), max_size=300), st.integers(2, 50))
def test_a_folded_sum_is_the_sum(values: list[float], limit: int) -> None:
    collector = collector_of([spec("a")], TelemetryLosses(), limit=limit)
    for value in values:
        collector.feeds[STORE].add(event(a=value))

    assert taken(collector)[()]["a"] == pytest.approx(sum(values), abs=1e-6)


def test_series_are_told_apart_by_their_tags(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a", message=TaggedMessage)], losses)
    collector.feeds[STORE].add(event(a=1, model_name="x"))
    collector.feeds[STORE].add(event(a=2, model_name="y"))
    collector.feeds[STORE].add(event(a=4, model_name="x"))

    assert taken(collector) == {("x",): {"a": 5}, ("y",): {"a": 2}}
    assert taken(collector) == {("x",): {"a": 0}, ("y",): {"a": 0}}


def test_more_series_than_the_bound_are_one(losses: TelemetryLosses) -> None:
    """Field fault I5"""
    collector = collector_of([spec("a", message=TaggedMessage)], losses)
    for number in range(10_000):
        collector.feeds[STORE].add(event(a=1, model_name=f"model-{number}"))
    found = taken(collector)

    assert len(found) == MOST_SERIES + 1
    assert found[("other",)] == {"a": 10_000 - MOST_SERIES}
