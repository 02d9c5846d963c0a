"""Map: each spec for itself. Buffers: bounded from the first second. Cover: exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core import Event, EventType, MetricSpec, UsageMessage
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.telemetry.samples import MOST_SERIES, MessageSamples, SampleCollector, check_cover, reduce_values

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
        collector.add(event(a=number, b=number))

    assert taken(collector) == {(): {"a": 6, "b": 3}}


def test_none_skips(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a", len, extract=lambda _event: None)], losses)
    collector.add(event())

    assert (taken(collector), losses.errors) == ({(): {"a": 0}}, 0)


def test_an_interval_is_taken_once(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a")], losses)
    collector.add(event(a=5))

    assert (taken(collector), taken(collector)) == ({(): {"a": 5}}, {(): {"a": 0}})


def test_a_bad_extract_never_starves_its_siblings(losses: TelemetryLosses) -> None:
    """D.15"""
    collector = collector_of([spec("a"), spec("b")], losses)
    for _ in range(3):
        collector.add(event(b=1))

    assert taken(collector) == {(): {"a": 0, "b": 3}}
    assert dict(losses.errors_by_place()) == {"AcmeMessage.a": 3}


def test_an_extract_that_ends_the_process_does_not(losses: TelemetryLosses) -> None:
    def leave(_event: Event) -> int:
        raise SystemExit(3)

    collector = collector_of([spec("a", extract=leave)], losses)
    collector.add(event())

    assert losses.errors == 1


def test_several_values_of_one_event_count_each(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a", len)], losses)
    collector.add(event(a=[1, 2.5, 3]))

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
    collector.add(event(a=value))

    assert (taken(collector), dict(losses.samples_by_reason())) == ({(): {"a": 0}}, {reason: 1})


def test_the_bound_holds_where_values_cannot_be_folded(losses: TelemetryLosses) -> None:
    """D.14: from the first value on, with nobody taking any."""
    full: list[int] = []
    collector = collector_of([spec("a", len)], losses, limit=100, on_full=lambda: full.append(1))
    for _ in range(50_000):
        collector.add(event(a=1))

    assert taken(collector) == {(): {"a": 100}}
    assert dict(losses.samples_by_reason()) == {"full": 49_900}
    assert full


def test_sums_are_folded_and_lose_nothing(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a")], losses, limit=100)
    most = 0
    for _ in range(5_000):
        collector.add(event(a=3))
        (((_group, [((), [values])]),)) = [
            (group, [(s, [b.values for b in bs]) for s, bs in group._series.items()]) for group in collector.groups
        ]
        most = max(most, len(values))

    assert most < 100
    assert (taken(collector), losses.samples) == ({(): {"a": 15_000}}, 0)


@given(st.lists(st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6)), max_size=300), st.integers(2, 50))
def test_a_folded_sum_is_the_sum(values: list[float], limit: int) -> None:
    collector = collector_of([spec("a")], TelemetryLosses(), limit=limit)
    for value in values:
        collector.add(event(a=value))

    assert taken(collector)[()]["a"] == pytest.approx(sum(values), abs=1e-6)


def test_series_are_told_apart_by_their_tags(losses: TelemetryLosses) -> None:
    collector = collector_of([spec("a", message=TaggedMessage)], losses)
    collector.add(event(a=1, model_name="x"))
    collector.add(event(a=2, model_name="y"))
    collector.add(event(a=4, model_name="x"))

    assert taken(collector) == {("x",): {"a": 5}, ("y",): {"a": 2}}
    assert taken(collector) == {("x",): {"a": 0}, ("y",): {"a": 0}}


def test_more_series_than_the_bound_are_one(losses: TelemetryLosses) -> None:
    """Field fault I5"""
    collector = collector_of([spec("a", message=TaggedMessage)], losses)
    for number in range(10_000):
        collector.add(event(a=1, model_name=f"model-{number}"))
    found = taken(collector)

    assert len(found) == MOST_SERIES + 1
    assert found[("other",)] == {"a": 10_000 - MOST_SERIES}


def test_exact_cover_passes() -> None:
    check_cover(AcmeMessage, [spec("a"), spec("b")])
    check_cover(AcmeMessage, [spec("a")], frozenset({"b"}))
    check_cover(TaggedMessage, [spec("a", message=TaggedMessage)])


def test_a_wrong_cover_names_every_field() -> None:
    with pytest.raises(ValueError) as caught:
        check_cover(AcmeMessage, [spec("b"), spec("c"), spec("b"), spec("sequence_number")])
    assert str(caught.value) == (
        "metric specs of usage message AcmeMessage: nothing fills: a; "
        "not to be filled: c, sequence_number; filled twice: b"
    )


def test_a_reduce_that_raises_names_its_field() -> None:
    with pytest.raises(ValueError) as caught:
        reduce_values([spec("a", max)], [[]])
    assert str(caught.value) == "AcmeMessage.a: reduce raised ValueError"
