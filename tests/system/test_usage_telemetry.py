"""The events of a real engine come out as numbers at a real collector."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.core.telemetry.collector import Collector

from lmcache_core import CacheManager, KVLayout, TelemetryContext
from lmcache_core.config.usage import UsageOptions
from lmcache_core.telemetry.engine_message import engine_message
from lmcache_core.telemetry.probes import StoreUsage, memory_probe, stores_probe
from lmcache_core.telemetry.start import Telemetry
from lmcache_core.threads import PeriodicThreadRegistry

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_size=4, dtype="float32")
CHUNK_TOKENS = 16


@pytest.fixture
def found(tmp_path: Path) -> dict[str, dict[str, object]]:
    """Every payload after one request of 40 tokens was stored, looked up and retrieved; the last of each type."""
    manager = CacheManager.from_config(
        overrides={"chunk_size": CHUNK_TOKENS, "max_local_cpu_size": 0.01, "remote_url": f"file://{tmp_path}/kv"},
        environ={},
        layout=LAYOUT,
        model_name="smollm2",
    )
    arena = manager.storage.local.arena
    with Collector() as collector:
        telemetry = Telemetry(
            UsageOptions(endpoint=collector.url),
            registry=manager.registry,
            bus=manager.bus,
            threads=PeriodicThreadRegistry(),
            context=TelemetryContext(chunk_tokens=CHUNK_TOKENS, deployment_mode="single_process"),
            metrics=manager.metrics.registry,
            probes=(
                memory_probe(lambda: (arena.used_bytes, arena.used_bytes + arena.free_bytes)),
                stores_probe(lambda: [StoreUsage(l2_name="file", bytes_used=-1, capacity_bytes=0)]),
            ),
            first_messages=(
                lambda: engine_message(manager.config.values, LAYOUT, model_name="smollm2", world_size=1, rank=0),
            ),
            environ={"HOME": str(tmp_path)},
        )
        telemetry.start()
        with manager:
            tokens = list(range(40))
            kv = torch.ones(LAYOUT.kv_shape(40))
            assert manager.engine.store(tokens, kv) == 32
            assert manager.engine.lookup(tokens) == 32
            assert int(manager.engine.retrieve(tokens, torch.zeros_like(kv)).sum()) == 32
            assert manager.storage.flush()
        return {payload["message_type"]: payload for payload in collector.payloads}


def test_what_a_request_came_to(found: dict[str, dict[str, object]]) -> None:
    message = found["ContinuousContextMessage"]

    assert message["interval_num_stored_tokens"] == 32
    assert message["interval_num_requested_tokens"] == 40
    assert message["interval_num_lookup_hit_tokens"] == 32
    assert message["interval_num_hit_tokens"] == 32
    assert message["interval_stored_kv_size"] == 32 * 2 * 2 * 4 * 4
    assert (message["swallowed_errors"], message["dropped_events"], message["dropped_samples"]) == (0, 0, 0)


def test_the_models_own_counters(found: dict[str, dict[str, object]]) -> None:
    message = found["ModelUsageMessage"]

    assert (message["model_name"], message["interval_lookups"]) == ("smollm2", 1)
    assert (message["interval_num_l1_hit_tokens"], message["interval_num_l2_hit_tokens"]) == (32, 0)


def test_the_stores_traffic(found: dict[str, dict[str, object]]) -> None:
    message = found["L2ConnectorUsageMessage"]

    assert (message["l2_name"], message["interval_store_succeeded_keys"]) == ("file", 2)
    assert message["unbounded_adapters"] == 1


def test_how_full_the_memory_is(found: dict[str, dict[str, object]]) -> None:
    message = found["L1UsageMessage"]

    assert message["bytes_used"] > 0  # type: ignore[operator]
    assert 10_000_000 < message["capacity_bytes"] <= 0.01 * 2**30  # type: ignore[operator]


def test_what_is_sent_once(found: dict[str, dict[str, object]]) -> None:
    assert found["EngineMessage"]["kv_shape"] == "2x2x16x1x4"
    assert "MetadataMessage" in found
