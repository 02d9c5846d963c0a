"""A whole cache tells the operator's own collector what it did, and nobody else anything."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.core.telemetry.collector import Collector

from lmcache_core import CacheManager, KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS = list(range(10))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


def address(collector: Collector) -> str:
    return f"http://127.0.0.1:{collector.port}/usage"


@pytest.fixture
def told(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """What a cache told that stored ten tokens, found them again in a store, and stopped."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DO_NOT_TRACK", raising=False)
    overrides = {
        "chunk_size": 4,
        "max_local_cpu_size": 0.001,
        "remote_url": f"file://{tmp_path}/kv",
        "usage_endpoint": address(collector),
    }
    made = CacheManager.from_config(
        overrides=overrides, environ={}, layout=LAYOUT, model_name="acme/tiny", model_type="llama"
    )
    with made as cache:
        kv = torch.ones(LAYOUT.kv_shape(10))
        cache.engine.store(TOKENS, kv)
        cache.storage.flush()
        cache.storage.local.clear()
        cache.engine.lookup(TOKENS)
        cache.engine.retrieve(TOKENS, kv)
    return collector


def test_tokens_are_told_once_a_request(told: Collector) -> None:
    messages = told.of("ContinuousContextMessage")

    assert sum(message["interval_num_stored_tokens"] for message in messages) == 8
    assert sum(message["interval_num_hit_tokens"] for message in messages) == 8
    assert sum(message["interval_stored_kv_size"] for message in messages) == 8 * LAYOUT.bytes_per_token


def test_every_kind_of_message_that_applies_arrives(told: Collector) -> None:
    kinds = {message["message_type"] for message in told.payloads}

    assert kinds >= {
        "EnvMessage",
        "EngineMessage",
        "MPInstanceMessage",
        "ContinuousContextMessage",
        "L1UsageMessage",
        "L2UsageMessage",
        "L2ConnectorUsageMessage",
    }


def test_the_instance_tells_its_architecture(told: Collector) -> None:
    (message,) = told.of("MPInstanceMessage")

    assert (message["attn_arch"], message["use_mla"], message["model_type"]) == ("full", False, "llama")


def test_a_store_is_told_by_its_kind_alone(told: Collector, tmp_path: Path) -> None:
    (message, *_) = told.of("L2ConnectorUsageMessage")

    assert message["l2_name"] == "file"
    assert str(tmp_path) not in json.dumps(told.payloads)


def test_without_a_collector_nothing_runs(tmp_path: Path) -> None:
    overrides = {"chunk_size": 4, "max_local_cpu_size": 0.001}
    with CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m") as cache:
        assert cache.usage is not None
        assert not cache.usage.is_on
        assert not any("usage" in thread.name for thread in threading.enumerate())


def test_opting_out_wins_over_a_collector(collector: Collector, tmp_path: Path) -> None:
    overrides = {"chunk_size": 4, "max_local_cpu_size": 0.001, "usage_endpoint": address(collector)}
    environ = {"LMCACHE_TRACK_USAGE": "No"}
    with CacheManager.from_config(overrides=overrides, environ=environ, layout=LAYOUT, model_name="m") as cache:
        assert cache.usage is not None
        assert not cache.usage.is_on

    assert collector.payloads == []
