"""A collector, a bus, and events as the engine publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.telemetry.collector import Collector

from lmcache_core import Event, EventType
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.telemetry.guard import TelemetryLosses


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def metrics() -> CacheMetrics:
    return CacheMetrics()


@pytest.fixture
def bus(metrics: CacheMetrics) -> Iterator[EventBus]:
    bus = EventBus(metrics)
    yield bus
    bus.stop()


@pytest.fixture
def losses() -> TelemetryLosses:
    return TelemetryLosses()


@pytest.fixture
def store_event() -> Any:
    def make(num_tokens: int = 512, total_bytes: int = 4096, model_name: str = "smollm2") -> Event:
        metadata = {"num_tokens": num_tokens, "total_bytes": total_bytes, "model_name": model_name, "stored_count": 2}
        return Event(EventType.MP_STORE_END, 1000.0, metadata)

    return make
