"""The default metrics. Token counts come right once a request from the events, not from ranks or groups."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

from lmcache_core import (
    CacheLifespanMessage,
    ContinuousContextMessage,
    EngineMessage,
    EnvMessage,
    Event,
    EventType,
    Histogram,
    L1UsageMessage,
    L2ConnectorUsageMessage,
    L2UsageMessage,
    MetadataMessage,
    MetricSpec,
    ModelUsageMessage,
    MPInstanceMessage,
    MPServerMessage,
    ReusePatternMessage,
    TelemetryContext,
    UsageMessage,
)

MESSAGES: tuple[type[UsageMessage], ...] = (
    EnvMessage,
    EngineMessage,
    MetadataMessage,
    MPServerMessage,
    MPInstanceMessage,
    ContinuousContextMessage,
    ModelUsageMessage,
    L1UsageMessage,
    L2ConnectorUsageMessage,
    L2UsageMessage,
    CacheLifespanMessage,
    ReusePatternMessage,
)
"""What this plugin declares. The first five are sent once; L1UsageMessage is read, not counted; the last is made
by plugin ``reuse``."""

LIFESPAN_MINUTES = (0, 1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000)
"""Upper bounds, LMCache's; the last is about three and a half days."""

ValueOf = Callable[[str], Callable[[Event], int | float]]
"""Gives the function that extracts a key of the metadata."""

_FAILURES = ("l1_oom", "l1_contended", "not_found")
_STORE, _RETRIEVE, _LOOKUP = EventType.MP_STORE_END, EventType.MP_RETRIEVE_END, EventType.MP_LOOKUP_PREFETCH_END


def default_metric_specs(context: TelemetryContext) -> Iterator[MetricSpec]:
    """Give the specs of all default messages that fit the deployment."""
    value_of = functools.cache(_value_of)  # specs that share a function share what it extracts
    yield from _continuous(value_of)
    yield from _by_model(value_of)
    yield from _by_store(value_of)
    yield from _of_stores(value_of, context.chunk_tokens)
    if context.deployment_mode == "single_process":
        yield MetricSpec(
            EventType.L1_KEYS_EVICTED,
            "cache_lifespan_histogram",
            _lifespans_minutes,
            lifespan_histogram,
            CacheLifespanMessage,
        )


def lifespan_histogram(minutes: Sequence[float]) -> Mapping[str, int]:
    """Count lifespans by upper bound."""
    histogram = Histogram(LIFESPAN_MINUTES)
    for each in minutes:
        histogram.add(each)
    return histogram.to_dict()


def _continuous(value_of: ValueOf) -> Iterator[MetricSpec]:
    for kind, key, field in (
        (_STORE, "num_tokens", "interval_num_stored_tokens"),
        (_RETRIEVE, "num_tokens", "interval_num_hit_tokens"),
        (_STORE, "total_bytes", "interval_stored_kv_size"),
        (_LOOKUP, "requested_tokens", "interval_num_requested_tokens"),
        (_LOOKUP, "hit_tokens", "interval_num_lookup_hit_tokens"),
        (EventType.L1_KEYS_EVICTED, "key_count", "interval_l1_evicted_keys"),
        (EventType.L2_KEYS_EVICTED, "key_count", "interval_l2_evicted_keys"),
    ):
        yield MetricSpec(kind, field, value_of(key), sum, ContinuousContextMessage)


def _by_model(value_of: ValueOf) -> Iterator[MetricSpec]:
    yield MetricSpec(_LOOKUP, "interval_lookups", _one, sum, ModelUsageMessage)
    for kind, key, field in (
        (_LOOKUP, "requested_tokens", "interval_num_requested_tokens"),
        (_LOOKUP, "hit_tokens", "interval_num_lookup_hit_tokens"),
        (_LOOKUP, "l1_hit_tokens", "interval_num_l1_hit_tokens"),
        (_LOOKUP, "l2_hit_tokens", "interval_num_l2_hit_tokens"),
        (_STORE, "num_tokens", "interval_num_stored_tokens"),
        (_RETRIEVE, "num_tokens", "interval_num_hit_tokens"),
        (_STORE, "total_bytes", "interval_stored_kv_size"),
    ):
        yield MetricSpec(kind, field, value_of(key), sum, ModelUsageMessage)


def _by_store(value_of: ValueOf) -> Iterator[MetricSpec]:
    for kind, key, field in (
        (EventType.L2_STORE_COMPLETED, "bytes_transferred", "interval_stored_bytes"),
        (EventType.L2_STORE_COMPLETED, "succeeded_count", "interval_store_succeeded_keys"),
        (EventType.L2_STORE_COMPLETED, "failed_count", "interval_store_failed_keys"),
        (EventType.L2_LOAD_TASK_SUBMITTED, "key_count", "interval_load_submitted_keys"),
        (EventType.L2_LOAD_TASK_SUBMITTED, "total_bytes", "interval_load_submitted_bytes"),
    ):
        yield MetricSpec(kind, field, value_of(key), sum, L2ConnectorUsageMessage)


def _of_stores(value_of: ValueOf, chunk_tokens: int) -> Iterator[MetricSpec]:
    done, failed = EventType.L2_LOAD_TASK_COMPLETED, EventType.L2_PREFETCH_FAILED
    yield MetricSpec(_LOOKUP, "interval_l2_lookup_keys", _beyond_memory(chunk_tokens), sum, L2UsageMessage)
    yield MetricSpec(done, "interval_l2_loaded_keys", value_of("succeeded_count"), sum, L2UsageMessage)
    yield MetricSpec(done, "interval_l2_load_failed_keys", _unloaded, sum, L2UsageMessage)
    for reason in _FAILURES:
        yield MetricSpec(failed, f"interval_l2_prefetch_failures_{reason}", _counts(reason), sum, L2UsageMessage)
    yield MetricSpec(failed, "interval_l2_prefetch_failures_other", _counts_other, sum, L2UsageMessage)
    evicted = value_of("key_count")
    yield MetricSpec(EventType.L2_KEYS_EVICTED, "interval_l2_evicted_keys", evicted, sum, L2UsageMessage)


def _value_of(key: str) -> Callable[[Event], int | float]:
    def extract(event: Event) -> int | float:
        value: int | float = event.metadata[key]
        return value

    return extract


def _beyond_memory(chunk_tokens: int) -> Callable[[Event], int]:
    def extract(event: Event) -> int:
        keys: int = event.metadata["requested_tokens"] // chunk_tokens - event.metadata["l1_hit_keys"]
        return keys

    return extract


def _one(event: Event) -> int:
    del event
    return 1


def _counts(reason: str) -> Callable[[Event], int | None]:
    return lambda event: 1 if event.metadata["reason"] == reason else None


def _counts_other(event: Event) -> int | None:
    return None if event.metadata["reason"] in _FAILURES else 1


def _unloaded(event: Event) -> int:
    missing: int = event.metadata["key_count"] - event.metadata["succeeded_count"]
    return missing


def _lifespans_minutes(event: Event) -> Sequence[float] | None:
    seconds = event.metadata.get("lifespans_s")
    return None if seconds is None else [each / 60 for each in seconds]
