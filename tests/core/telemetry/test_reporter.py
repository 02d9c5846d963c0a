"""Intervals, losses, sequence; the bytes go to a real collector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.core.telemetry.collector import Collector

from lmcache_core import (
    ContinuousContextMessage,
    Event,
    EventSubscriber,
    EventType,
    MetricSpec,
    ReusePatternMessage,
    TelemetryContext,
    UsageMessage,
)
from lmcache_core.telemetry.guard import TelemetryLosses
from lmcache_core.telemetry.messages import L1UsageMessage, MetadataMessage
from lmcache_core.telemetry.outbox import Outbox
from lmcache_core.telemetry.payload import UsageIdentity
from lmcache_core.telemetry.probes import StoreUsage, memory_probe, stores_probe
from lmcache_core.telemetry.reporter import MPContinuousUsageReporter
from lmcache_core.telemetry.transport import UsageMessageSender
from lmcache_plugins.usage.specs import default_metric_specs

CONTEXT = TelemetryContext(chunk_tokens=256, deployment_mode="mp_server")
IDENTITY = UsageIdentity(session_id="s", machine_id="m", deployment_mode="mp_server")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Rig:
    reporter: MPContinuousUsageReporter
    losses: TelemetryLosses
    clock: Clock

    def tell(self, kind: EventType, **metadata: object) -> None:
        self.reporter.get_subscriptions()[kind](Event(kind, 0.0, metadata))

    def store(self, num_tokens: int = 512, total_bytes: int = 4096, model_name: str = "smollm2") -> None:
        self.tell(EventType.MP_STORE_END, num_tokens=num_tokens, total_bytes=total_bytes, model_name=model_name)

    def flush_after(self, seconds: float) -> str:
        self.clock.now_s += seconds
        return self.reporter.flush()


def no_stores() -> Iterable[StoreUsage]:
    return ()


@pytest.fixture
def rig(collector: Collector, losses: TelemetryLosses) -> Callable[..., Rig]:
    def make(specs: list[MetricSpec] | None = None, **options: Any) -> Rig:
        clock = Clock()
        options.setdefault("probes", (memory_probe(lambda: (10, 100)), stores_probe(no_stores)))
        reporter = MPContinuousUsageReporter(
            list(default_metric_specs(CONTEXT)) if specs is None else specs,
            outbox=Outbox(UsageMessageSender(collector.url, timeout_s=0.5), lambda: IDENTITY, losses),
            losses=losses,
            clock=clock,
            **options,
        )
        return Rig(reporter, losses, clock)

    return make


def continuous(collector: Collector) -> list[dict[str, Any]]:
    return collector.of("ContinuousContextMessage")


def test_an_interval_comes_to_one_message(rig: Callable[..., Rig], collector: Collector) -> None:
    one = rig()
    one.store()
    one.store()
    one.tell(EventType.MP_RETRIEVE_END, num_tokens=256, total_bytes=9, model_name="smollm2")
    one.flush_after(600.0)
    payload = continuous(collector)[0]

    assert {name: payload[name] for name in payload if name.startswith("interval")} == {
        "interval_num_stored_tokens": 1024,
        "interval_num_hit_tokens": 256,
        "interval_stored_kv_size": 8192,
        "interval_num_requested_tokens": 0,
        "interval_num_lookup_hit_tokens": 0,
        "interval_l1_evicted_keys": 0,
        "interval_l2_evicted_keys": 0,
    }
    assert (payload["sequence_number"], payload["uptime_seconds"], payload["sample_rate"]) == (0, 600.0, 1.0)
    assert (payload["session_id"], payload["machine_id"], payload["deployment_mode"]) == ("s", "m", "mp_server")


def test_an_empty_interval_is_told_too_and_counts_are_not_cumulative(
    rig: Callable[..., Rig], collector: Collector
) -> None:
    one = rig()
    one.store()
    one.flush_after(600.0)
    one.flush_after(600.0)

    assert [payload["interval_num_stored_tokens"] for payload in continuous(collector)] == [512, 0]
    assert [payload["sequence_number"] for payload in continuous(collector)] == [0, 1]


def test_all_messages_of_an_interval_have_one_sequence_number(rig: Callable[..., Rig], collector: Collector) -> None:
    one = rig()
    one.store()
    one.flush_after(1.0)
    one.flush_after(1.0)

    numbers: dict[str, list[int]] = {}
    for payload in collector.payloads:
        numbers.setdefault(payload["message_type"], []).append(payload["sequence_number"])
    assert numbers == {
        key: [0, 1] for key in ("ContinuousContextMessage", "ModelUsageMessage", "L1UsageMessage", "L2UsageMessage")
    }


def test_a_lost_interval_is_a_gap_that_the_next_report_explains(rig: Callable[..., Rig], collector: Collector) -> None:
    """B.26, D.18: dropped, never retried."""
    one = rig()
    one.store()
    collector.status = 503
    assert one.flush_after(600.0) == "http_503"
    one.flush_after(600.0)
    collector.status = 204
    collector.requests.clear()
    assert one.flush_after(600.0) == ""
    one.flush_after(600.0)
    third, fourth = continuous(collector)

    assert (third["sequence_number"], third["lost_intervals"], third["gap_reason"]) == (2, 2, "http_503")
    assert third["interval_num_stored_tokens"] == 0
    assert (fourth["sequence_number"], fourth["lost_intervals"], fourth["gap_reason"]) == (3, 0, "")


def test_a_collector_that_cannot_be_reached_is_tried_once_an_interval(
    rig: Callable[..., Rig], collector: Collector
) -> None:
    one = rig()
    one.store()
    collector.stall()
    assert one.flush_after(600.0) == "timeout"
    assert len(collector.requests) == 1


def test_a_payload_tells_what_telemetry_lost(rig: Callable[..., Rig], collector: Collector) -> None:
    one = rig()
    one.reporter.events_lost(7)
    one.tell(EventType.MP_STORE_END, num_tokens=float("nan"), total_bytes=1, model_name="x")
    one.tell(EventType.MP_RETRIEVE_END, model_name="x")  # no num_tokens
    one.flush_after(1.0)
    one.flush_after(1.0)
    first, second = continuous(collector)

    names = ("dropped_events", "dropped_samples", "swallowed_errors")
    assert [first[name] for name in names] == [7, 2, 1]
    assert [second[name] for name in names] == [0, 0, 0]


def test_what_was_lost_is_told_until_a_report_arrives(rig: Callable[..., Rig], collector: Collector) -> None:
    one = rig()
    one.reporter.events_lost(7)
    collector.status = 500
    one.flush_after(1.0)
    one.reporter.events_lost(1)
    collector.status = 204
    one.flush_after(1.0)

    assert [payload["dropped_events"] for payload in continuous(collector)] == [7, 8]


def test_counters_of_each_model_are_told_apart(rig: Callable[..., Rig], collector: Collector) -> None:
    one = rig()
    one.tell(
        EventType.MP_KV_REGISTERED, model_name="a", world_size=1, attn_windows="-1,8", group_kinds="", use_mla=False
    )
    one.store(model_name="a")
    one.store(num_tokens=256, model_name="/srv/secret")
    one.store(num_tokens=256, model_name="/srv/other-secret")
    one.tell(
        EventType.MP_LOOKUP_PREFETCH_END,
        model_name="a", requested_tokens=1024, hit_tokens=768, l1_hit_tokens=512, l2_hit_tokens=256, l1_hit_keys=2,
    )  # fmt: skip
    one.flush_after(1.0)
    found = {payload["model_name"]: payload for payload in collector.of("ModelUsageMessage")}

    assert sorted(found) == ["a", "private"]
    assert (found["a"]["attn_arch"], found["private"]["attn_arch"]) == ("full+swa", "unknown")
    assert (found["a"]["interval_num_stored_tokens"], found["private"]["interval_num_stored_tokens"]) == (512, 512)
    assert [
        found["a"][f"interval_{name}"] for name in ("lookups", "num_requested_tokens", "num_lookup_hit_tokens")
    ] == [1, 1024, 768]
    assert [found["a"][f"interval_num_{name}_hit_tokens"] for name in ("l1", "l2")] == [512, 256]


def test_a_model_is_announced_once_and_at_once(rig: Callable[..., Rig], collector: Collector) -> None:
    one, woken = rig(), threading.Event()
    one.reporter.attach(wake=woken.set, stop=lambda: None)
    for _ in range(2):
        one.tell(EventType.MP_KV_REGISTERED, model_name="gpt2", world_size=1, attn_windows=(-1,), group_kinds=())
    assert woken.is_set()
    one.reporter.announce()
    one.reporter.announce()

    assert [payload["attn_arch"] for payload in collector.of("MPInstanceMessage")] == ["full"]
    assert continuous(collector) == []


def test_each_first_message_is_sent_once_and_a_raising_one_costs_no_other(
    rig: Callable[..., Rig], collector: Collector
) -> None:
    def fail() -> UsageMessage:
        raise OSError("no such file")

    one = rig(first_messages=(fail, lambda: MetadataMessage(1.0, 2.0)))
    one.reporter.announce()
    one.reporter.announce()

    assert [payload["message_type"] for payload in collector.payloads] == ["MetadataMessage"]
    assert one.losses.errors == 1


def test_a_stores_traffic_and_room_are_one_message_of_its_kind(rig: Callable[..., Rig], collector: Collector) -> None:
    stores = [
        StoreUsage(l2_name="redis", bytes_used=5, capacity_bytes=0),
        StoreUsage(l2_name="redis", bytes_used=6, capacity_bytes=100),
        StoreUsage(l2_name="file", bytes_used=-1, capacity_bytes=0),
    ]
    one = rig(probes=(memory_probe(lambda: (1, 2)), stores_probe(lambda: stores)))
    one.tell(EventType.L2_STORE_COMPLETED, l2_name="redis", bytes_transferred=10, succeeded_count=2, failed_count=1)
    one.tell(EventType.L2_LOAD_TASK_SUBMITTED, l2_name="disk", key_count=3, total_bytes=30)
    one.flush_after(60.0)
    found = {payload["l2_name"]: payload for payload in collector.of("L2ConnectorUsageMessage")}

    assert sorted(found) == ["disk", "file", "redis"]
    state = ("bytes_used", "capacity_bytes", "unbounded_adapters")
    assert [found["redis"][name] for name in state] == [11, 100, 1]
    assert [found["file"][name] for name in state] == [-1, 0, 1]  # idle, and reports nevertheless
    assert [found["disk"][name] for name in state] == [-1, 0, 0]  # has traffic, and is not there to be asked
    assert (found["redis"]["interval_stored_bytes"], found["redis"]["interval_store_failed_keys"]) == (10, 1)
    assert (found["disk"]["interval_load_submitted_keys"], found["disk"]["active_seconds"]) == (3, 60.0)


def test_a_probe_that_raises_says_so_in_its_fields(rig: Callable[..., Rig], collector: Collector) -> None:
    def fail() -> tuple[int, int]:
        raise RuntimeError("boom")

    one = rig(probes=(memory_probe(fail), stores_probe(no_stores)))
    one.flush_after(1.0)
    payload = collector.of("L1UsageMessage")[0]

    assert (payload["bytes_used"], payload["capacity_bytes"], one.losses.errors) == (-1, 0, 1)


class Source(EventSubscriber):
    def __init__(self, *messages: UsageMessage, error: Exception | None = None) -> None:
        self.messages, self.error = messages, error

    def get_subscriptions(self) -> dict[EventType | str, Callable[[Event], None]]:
        return {}

    def usage_messages(self) -> Iterable[UsageMessage]:
        yield from self.messages
        if self.error is not None:
            raise self.error


def reuse() -> ReusePatternMessage:
    return ReusePatternMessage(1 / 64, 10, 4, 3, 5, 60.0, 1, 0, {"60": 1, "+Inf": 0}, {"60": 4, "+Inf": 0}, {"1|60": 1})


def test_a_subscribers_own_messages_are_stamped_and_keep_their_sample_rate(
    rig: Callable[..., Rig], collector: Collector
) -> None:
    one = rig(sources=(Source(error=RuntimeError("boom")), Source(reuse())))
    one.flush_after(5.0)
    one.flush_after(5.0)
    first, second = collector.of("ReusePatternMessage")

    assert (first["sequence_number"], second["sequence_number"], second["uptime_seconds"]) == (0, 1, 10.0)
    assert (first["sample_rate"], first["reuse_lifespan_histogram"]) == (1 / 64, {"1|60": 1})
    assert one.losses.errors == 2


def test_a_metric_that_cannot_be_written_is_a_gap_of_its_message_alone(
    rig: Callable[..., Rig], collector: Collector
) -> None:
    @dataclass(frozen=True)
    class AcmeMessage(UsageMessage):
        a: int

    specs = [
        *default_metric_specs(CONTEXT),
        MetricSpec("acme.thing", "a", lambda _event: 1, lambda _values: 1 << 63, AcmeMessage),
    ]
    one = rig(specs)

    assert one.flush_after(1.0) == "bad_value"
    assert collector.of("AcmeMessage") == []
    assert len(continuous(collector)) == 1
    one.flush_after(1.0)
    assert continuous(collector)[1]["lost_intervals"] == 0


def test_specs_that_do_not_cover_their_message_are_refused(rig: Callable[..., Rig]) -> None:
    specs = [spec for spec in default_metric_specs(CONTEXT) if spec.field != "interval_num_hit_tokens"]
    specs.append(MetricSpec(EventType.MP_STORE_END, "sequence_number", lambda _event: 1, sum, ContinuousContextMessage))
    with pytest.raises(ValueError) as caught:
        rig(specs)
    assert str(caught.value) == (
        "metric specs of usage message ContinuousContextMessage: nothing fills: interval_num_hit_tokens; "
        "not to be filled: sequence_number"
    )


def test_a_bound_below_one_is_refused(rig: Callable[..., Rig]) -> None:
    with pytest.raises(ValueError) as caught:
        rig(max_buffered_samples=0)
    assert str(caught.value) == "max_buffered_samples must be at least 1, got 0"


def test_a_preview_is_what_would_be_sent(rig: Callable[..., Rig], collector: Collector) -> None:
    one = rig(first_messages=(lambda: MetadataMessage(1.0, 2.0),))
    shown = one.reporter.preview()

    assert [type(message).__name__ for message in shown] == [
        "MetadataMessage", "ContinuousContextMessage", "L2UsageMessage", "L1UsageMessage",
    ]  # fmt: skip
    assert shown[-1] == L1UsageMessage(0.0, 10, 100, 0, 0.0)
    assert collector.requests == []


def test_events_and_flushes_at_once_lose_nothing(rig: Callable[..., Rig], collector: Collector) -> None:
    one, done = rig(), threading.Event()
    store = one.reporter.get_subscriptions()[EventType.MP_STORE_END]
    event = Event(EventType.MP_STORE_END, 0.0, {"num_tokens": 1, "total_bytes": 1, "model_name": "a"})

    def publish() -> None:
        for _ in range(20_000):
            store(event)
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    while not done.is_set():
        one.reporter.flush()
    thread.join()
    one.reporter.flush()

    assert sum(payload["interval_num_stored_tokens"] for payload in continuous(collector)) == 20_000
    assert sum(payload["interval_stored_kv_size"] for payload in collector.of("ModelUsageMessage")) == 20_000
