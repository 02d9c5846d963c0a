from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.core.telemetry.collector import Collector

from lmcache_core import UsageMessage
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.telemetry.messages import MetadataMessage
from lmcache_core.telemetry.outbox import LastResult, Outbox
from lmcache_core.telemetry.payload import UsageIdentity
from lmcache_core.telemetry.transport import UsageMessageSender

MESSAGE = MetadataMessage(1.0, 2.0)


@dataclass(frozen=True)
class BadMessage(UsageMessage):
    count: int


def identity() -> UsageIdentity:
    return UsageIdentity(session_id="s", machine_id="m", deployment_mode="mp_server")


class Exploding:
    def send(self, path: str, body: bytes, *, timeout_s: float | None = None) -> str:
        raise RuntimeError("boom")


def test_results_are_counted_by_message_and_outcome(collector: Collector, losses: TelemetryLosses) -> None:
    outbox = Outbox(UsageMessageSender(collector.url), identity, losses, clock=lambda: 7.0)
    assert outbox.send(MESSAGE) == ""
    collector.status = 500
    assert outbox.send(MESSAGE) == "http_500"
    assert outbox.send(BadMessage("x")) == "bad_value"  # type: ignore[arg-type]

    assert outbox.counts() == {
        ("MetadataMessage", "sent"): 1,
        ("MetadataMessage", "http_500"): 1,
        ("BadMessage", "bad_value"): 1,
    }
    assert outbox.last == LastResult(7.0, "BadMessage", "bad_value")
    assert dict(losses.errors_by_place()) == {"BadMessage": 1}


def test_a_raising_sender_is_an_error_and_no_more(losses: TelemetryLosses) -> None:
    assert Outbox(Exploding(), identity, losses).send(MESSAGE) == "error"
    assert dict(losses.errors_by_place()) == {"send": 1}


def test_the_identity_is_asked_for_once_and_not_before_the_first_message(
    collector: Collector, losses: TelemetryLosses
) -> None:
    asked: list[int] = []

    def ask() -> UsageIdentity:
        asked.append(1)
        return identity()

    outbox = Outbox(UsageMessageSender(collector.url), ask, losses)
    before = len(asked)
    outbox.send(MESSAGE)
    outbox.send(MESSAGE)

    assert (before, len(asked)) == (0, 1)


def test_whoever_is_told_of_results_may_fail(collector: Collector, losses: TelemetryLosses) -> None:
    def fail(_result: LastResult) -> None:
        raise OSError("disk full")

    assert Outbox(UsageMessageSender(collector.url), identity, losses, on_result=fail).send(MESSAGE) == ""
    assert dict(losses.errors_by_place()) == {"last result": 1}


def test_a_streak_of_failures_is_one_line(
    collector: Collector, losses: TelemetryLosses, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    collector.status = 503
    outbox = Outbox(UsageMessageSender(collector.url), identity, losses)
    for _ in range(3):
        outbox.send(MESSAGE)

    assert caplog.messages == ["usage telemetry: MetadataMessage did not arrive: http_503"]
