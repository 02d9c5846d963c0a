"""One plugin's mistake costs no other plugin its metrics."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lmcache_core import EventType, MetricSpec, UsageMessage
from lmcache_core.registry.record import Declared
from lmcache_core.telemetry.choose import choose_specs
from lmcache_core.telemetry.probes import UsageProbe


@dataclass(frozen=True)
class OursMessage(UsageMessage):
    a: int
    b: int


@dataclass(frozen=True)
class TheirsMessage(UsageMessage):
    c: int


def spec(field: str, message: type[UsageMessage]) -> MetricSpec:
    return MetricSpec(EventType.MP_STORE_END, field, lambda _event: 1, sum, message)


def ours(field: str, message: type[UsageMessage] = OursMessage) -> Declared[MetricSpec]:
    return Declared("ours", "ours 1.0", spec(field, message))


def theirs(field: str, message: type[UsageMessage] = TheirsMessage) -> Declared[MetricSpec]:
    return Declared("theirs", "theirs 2.0", spec(field, message))


MESSAGES = [Declared("ours", "ours 1.0", OursMessage), Declared("theirs", "theirs 2.0", TheirsMessage)]


def fields(specs: list[MetricSpec]) -> list[str]:
    return [spec.field for spec in specs]


def test_complete_messages_are_kept() -> None:
    assert fields(choose_specs([ours("a"), ours("b"), theirs("c")], MESSAGES, ())) == ["a", "b", "c"]


def test_an_incomplete_message_is_left_out_alone(caplog: pytest.LogCaptureFixture) -> None:
    assert fields(choose_specs([ours("a"), ours("b"), theirs("d")], MESSAGES, ())) == ["a", "b"]
    assert caplog.messages == [
        (
            "metric specs of plugin 'theirs' (theirs 2.0) are left out: "
            "metric specs of usage message TheirsMessage: nothing fills: c; not to be filled: d"
        )
    ]


def test_a_stranger_cannot_spoil_a_message(caplog: pytest.LogCaptureFixture) -> None:
    specs = [ours("a"), ours("b"), theirs("b", OursMessage)]
    assert fields(choose_specs(specs, MESSAGES, ())) == ["a", "b"]
    assert caplog.messages == [
        (
            "metric specs of plugin 'theirs' (theirs 2.0) are left out: "
            "metric specs of usage message OursMessage: filled twice: b"
        )
    ]


def test_two_plugins_may_fill_one_message_together() -> None:
    assert fields(choose_specs([ours("a"), theirs("b", OursMessage)], MESSAGES, ())) == ["a", "b"]


def test_a_message_that_nobody_declared_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_specs([theirs("c")], MESSAGES[:1], ()) == []
    assert caplog.messages == [
        "metric specs of plugin 'theirs' (theirs 2.0) are left out: no plugin declares usage message TheirsMessage"
    ]


def test_a_probes_fields_need_no_spec() -> None:
    probe = UsageProbe(message=OursMessage, missing={"b": -1}, read=lambda: ())
    assert fields(choose_specs([ours("a")], MESSAGES, [probe])) == ["a"]
