"""Cover: exact. Buffers: bounded, and sums lose nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from lmcache_core import EventType, MetricSpec, UsageMessage
from lmcache_core.telemetry.samples import SampleBuffer, check_cover, reduce_values

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


def test_a_sum_keeps_a_few_values_and_loses_none() -> None:
    buffer = SampleBuffer(sum, 10)
    most = 0
    for _ in range(5_000):
        assert buffer.extend([1, 2]) == 0
        most = max(most, len(buffer.values))

    assert (most < 10, sum(buffer.values), buffer.is_full) == (True, 15_000, False)


def test_other_values_are_kept_up_to_the_bound() -> None:
    buffer = SampleBuffer(max, 10)

    assert [buffer.extend([1, 2, 3, 4]) for _ in range(4)] == [0, 0, 2, 4]
    assert (buffer.values, buffer.is_full) == ([1, 2, 3, 4, 1, 2, 3, 4, 1, 2], True)


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
