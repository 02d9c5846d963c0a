"""The default metrics over the events of requirements C4."""

from __future__ import annotations

from typing import Any

import pytest

from lmcache_core import (
    CacheLifespanMessage,
    ContinuousContextMessage,
    Event,
    EventType,
    L2ConnectorUsageMessage,
    L2UsageMessage,
    ModelUsageMessage,
    TelemetryContext,
    UsageMessage,
)
from lmcache_core.telemetry.samples import check_cover
from lmcache_plugins.usage.specs import default_metric_specs, lifespan_histogram

PROCESS = TelemetryContext(chunk_tokens=256, deployment_mode="single_process")
SERVER = TelemetryContext(chunk_tokens=256, deployment_mode="mp_server")


def value(message: type[UsageMessage], field: str, *events: Event) -> Any:
    (spec,) = [one for one in default_metric_specs(PROCESS) if (one.message, one.field) == (message, field)]
    values: list[Any] = []
    for event in events:
        found = spec.extract(event) if event.event_type == spec.event_type else None
        values += found if isinstance(found, list) else [] if found is None else [found]
    return spec.reduce(values)


def event(kind: EventType, **metadata: object) -> Event:
    return Event(kind, 0.0, metadata)


def test_tokens_are_those_of_the_request_and_not_of_its_ranks_and_groups() -> None:
    """D.13: two ranks with three groups each store one request of 512 tokens; the event says 512."""
    stored = event(EventType.MP_STORE_END, num_tokens=512, stored_count=12, total_bytes=99)
    retrieved = event(EventType.MP_RETRIEVE_END, num_tokens=256, retrieved_count=6, total_bytes=50)

    assert value(ContinuousContextMessage, "interval_num_stored_tokens", stored) == 512
    assert value(ContinuousContextMessage, "interval_num_hit_tokens", retrieved) == 256
    assert value(ContinuousContextMessage, "interval_stored_kv_size", stored) == 99


def test_hits_and_what_they_are_measured_against_come_from_one_event() -> None:
    """Field fault H1."""
    lookups = [
        event(EventType.MP_LOOKUP_PREFETCH_END, requested_tokens=1000, hit_tokens=768, l1_hit_tokens=512, l2_hit_tokens=256, l1_hit_keys=2),
        event(EventType.MP_LOOKUP_PREFETCH_END, requested_tokens=100, hit_tokens=0, l1_hit_tokens=0, l2_hit_tokens=0, l1_hit_keys=0),
    ]  # fmt: skip

    assert value(ContinuousContextMessage, "interval_num_requested_tokens", *lookups) == 1100
    assert value(ContinuousContextMessage, "interval_num_lookup_hit_tokens", *lookups) == 768
    assert value(ModelUsageMessage, "interval_lookups", *lookups) == 2
    assert value(ModelUsageMessage, "interval_num_l1_hit_tokens", *lookups) == 512
    assert value(ModelUsageMessage, "interval_num_l2_hit_tokens", *lookups) == 256
    assert value(L2UsageMessage, "interval_l2_lookup_keys", *lookups) == 1


def test_evictions_of_both_levels() -> None:
    gone = [event(EventType.L1_KEYS_EVICTED, key_count=3), event(EventType.L2_KEYS_EVICTED, key_count=4)]

    assert value(ContinuousContextMessage, "interval_l1_evicted_keys", *gone) == 3
    assert value(ContinuousContextMessage, "interval_l2_evicted_keys", *gone) == 4
    assert value(L2UsageMessage, "interval_l2_evicted_keys", *gone) == 4


def test_traffic_of_stores() -> None:
    stored = event(
        EventType.L2_STORE_COMPLETED, l2_name="redis", bytes_transferred=7, succeeded_count=2, failed_count=1
    )
    asked = event(EventType.L2_LOAD_TASK_SUBMITTED, l2_name="redis", key_count=5, total_bytes=50)
    fields = (
        "stored_bytes",
        "store_succeeded_keys",
        "store_failed_keys",
        "load_submitted_keys",
        "load_submitted_bytes",
    )

    assert [value(L2ConnectorUsageMessage, f"interval_{name}", stored, asked) for name in fields] == [7, 2, 1, 5, 50]


def test_loads_and_failures_by_reason() -> None:
    done = event(EventType.L2_LOAD_TASK_COMPLETED, l2_name="redis", key_count=5, succeeded_count=3)
    reasons = ("l1_oom", "l1_contended", "not_found", "not_found", "timeout", "corrupt", "")
    failed = [event(EventType.L2_PREFETCH_FAILED, reason=reason, key_count=1) for reason in reasons]

    assert value(L2UsageMessage, "interval_l2_loaded_keys", done) == 3
    assert value(L2UsageMessage, "interval_l2_load_failed_keys", done) == 2
    names = ("l1_oom", "l1_contended", "not_found", "other")
    counts = [value(L2UsageMessage, f"interval_l2_prefetch_failures_{name}", *failed) for name in names]
    assert counts == [1, 1, 2, 3]


def test_a_lifespan_is_counted_under_its_upper_bound_and_none_is_lost() -> None:
    """D.17: LMCache's own sample, with the overflow that it lost."""
    found = lifespan_histogram([0, 0.5, 1, 5, 5.1, 5000, 6000])

    assert {bound: count for bound, count in found.items() if count} == {
        "0": 1, "1": 2, "5": 1, "10": 1, "5000": 1, "+Inf": 1,
    }  # fmt: skip
    assert sum(found.values()) == 7


def test_lifespans_come_with_the_evictions() -> None:
    gone = event(EventType.L1_KEYS_EVICTED, key_count=2, lifespans_s=(30.0, 120.0))
    untold = event(EventType.L1_KEYS_EVICTED, key_count=2)

    found = value(CacheLifespanMessage, "cache_lifespan_histogram", gone, untold)
    assert {bound: count for bound, count in found.items() if count} == {"1": 1, "5": 1}


@pytest.mark.parametrize("context", [PROCESS, SERVER])
def test_each_message_is_covered_exactly(context: TelemetryContext) -> None:
    specs = list(default_metric_specs(context))
    probed = {L2ConnectorUsageMessage: frozenset({"bytes_used", "capacity_bytes", "unbounded_adapters"})}
    for message in {spec.message for spec in specs}:
        check_cover(message, [spec for spec in specs if spec.message is message], probed.get(message, frozenset()))


def test_lifespans_are_of_in_process_caches_only() -> None:
    assert CacheLifespanMessage not in {spec.message for spec in default_metric_specs(SERVER)}


@pytest.mark.parametrize(
    "spec", list(default_metric_specs(PROCESS)), ids=lambda spec: f"{spec.message.__name__}.{spec.field}"
)
def test_an_interval_without_events_reduces(spec: Any) -> None:
    found = spec.reduce([])
    assert found == 0 or not any(found.values())
