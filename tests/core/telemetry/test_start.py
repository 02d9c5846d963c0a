"""Telemetry as a cache starts it: off it is nothing, on it delays nobody (D.16, field fault I1)."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.telemetry.collector import Collector

from lmcache_core import EventType, TelemetryContext, UsageMessage
from lmcache_core.config.usage import UsageOptions
from lmcache_core.contracts.url import StoreURL
from lmcache_core.events.bus import EventBus
from lmcache_core.loading import load
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.registry.collect import PluginRegistry
from lmcache_core.telemetry.machine import describe_machine
from lmcache_core.telemetry.probes import memory_probe, stores_probe
from lmcache_core.telemetry.start import Telemetry
from lmcache_core.threads import PeriodicThreadRegistry

CONTEXT = TelemetryContext(chunk_tokens=256, deployment_mode="single_process")
PROBES = (memory_probe(lambda: (1, 2)), stores_probe(lambda: ()))


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return load(environ={}, third_party=False).registry


@pytest.fixture
def start(
    registry: PluginRegistry, bus: EventBus, metrics: CacheMetrics, tmp_path: Path
) -> Iterator[Callable[..., Telemetry]]:
    made: list[Telemetry] = []

    def begin(endpoint: StoreURL | None, *, options: dict[str, Any] | None = None, **more: Any) -> Telemetry:
        telemetry = Telemetry(
            UsageOptions(endpoint=endpoint, endpoint_source="env LMCACHE_USAGE_ENDPOINT", **(options or {})),
            registry=registry,
            bus=bus,
            threads=PeriodicThreadRegistry(),
            context=CONTEXT,
            metrics=metrics.registry,
            environ={"HOME": str(tmp_path)},
            **{"probes": PROBES, **more},
        )
        made.append(telemetry)
        telemetry.start()
        return telemetry

    yield begin
    for telemetry in made:
        telemetry.stop(0.1)


def usage_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "usage" in thread.name]


OFF = [
    (None, {}),
    ("http://127.0.0.1:9", {"track_usage": False}),
    ("http://127.0.0.1:9", {"switches": {"DO_NOT_TRACK": "1"}}),
    ("http://127.0.0.1:9", {"switches": {"LMCACHE_TRACK_USAGE": "No"}}),
]


@pytest.mark.parametrize(("endpoint", "options"), OFF)
def test_off_there_is_no_thread_no_file_no_subscriber_and_no_family(
    start: Callable[..., Telemetry], metrics: CacheMetrics, tmp_path: Path, endpoint: str, options: Any
) -> None:
    telemetry = start(StoreURL.parse(endpoint) if endpoint else None, options=options)

    assert telemetry.is_on is False
    assert usage_threads() == []
    assert list(tmp_path.iterdir()) == []
    assert metrics.registry.get_sample_value("lmcache:event_bus_queue_depth", {"subscriber": "usage"}) is None
    assert not any(family.name.startswith("lmcache:usage_") for family in metrics.registry.collect())


def test_off_no_client_is_imported_and_no_plugin_is_asked() -> None:
    script = """
import sys
from lmcache_core import EventType, TelemetryContext
from lmcache_core.config.usage import UsageOptions
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.telemetry.start import Telemetry
from lmcache_core.threads import PeriodicThreadRegistry
metrics = CacheMetrics()
context = TelemetryContext(chunk_tokens=256, deployment_mode="single_process")
telemetry = Telemetry(UsageOptions(), registry=None, bus=EventBus(metrics), threads=PeriodicThreadRegistry(),
    context=context, metrics=metrics.registry)
telemetry.start()
telemetry.stop()
print(sorted({"lmcache_core.telemetry.transport", "httpx", "lmcache_plugins.usage.specs"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_on_the_first_messages_come_at_once_and_the_interval_at_the_end(
    start: Callable[..., Telemetry], bus: EventBus, collector: Collector
) -> None:
    telemetry = start(collector.url, first_messages=(lambda: describe_machine({}),))
    collector.wait_for("EnvMessage")
    collector.wait_for("MetadataMessage")
    bus.publish(EventType.MP_STORE_END, {"num_tokens": 256, "total_bytes": 10, "model_name": "gpt2"})
    assert bus.stop() is True

    payload = collector.of("ContinuousContextMessage")[0]
    assert (payload["interval_num_stored_tokens"], payload["sequence_number"]) == (256, 0)
    assert collector.of("ModelUsageMessage")[0]["model_name"] == "gpt2"
    assert collector.of("CacheLifespanMessage")[0]["cache_lifespan_histogram"]["+Inf"] == 0
    assert telemetry.status()["on"] is True


def test_one_session_and_one_machine_in_all_payloads(
    start: Callable[..., Telemetry], bus: EventBus, collector: Collector, tmp_path: Path
) -> None:
    start(collector.url)
    bus.stop()

    assert len({(payload["session_id"], payload["machine_id"]) for payload in collector.payloads}) == 1
    machine = (tmp_path / ".config/lmcache/machine_id").read_text().strip()
    assert {payload["machine_id"] for payload in collector.payloads} == {machine}


def test_a_model_that_registers_is_announced_before_the_interval_ends(
    start: Callable[..., Telemetry], bus: EventBus, collector: Collector
) -> None:
    start(collector.url)
    bus.publish(
        EventType.MP_KV_REGISTERED,
        {"model_name": "gpt2", "world_size": 1, "attn_windows": "-1", "group_kinds": "attention", "use_mla": False},
    )
    assert collector.wait_for("MPInstanceMessage")[0]["attn_arch"] == "full"
    assert collector.of("ContinuousContextMessage") == []


@pytest.mark.timing
def test_a_name_server_that_never_answers_delays_nothing(
    start: Callable[..., Telemetry], bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hang(*_arguments: object, **_options: object) -> list[object]:
        asked.set()
        go_on.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.perf_counter()
    start(StoreURL.parse("https://collector.example"))
    start_s = time.perf_counter() - started
    assert asked.wait(10)
    started = time.perf_counter()
    bus.stop()
    stop_s = time.perf_counter() - started
    go_on.set()

    assert start_s < 0.05
    assert stop_s < 3.0


@pytest.mark.timing
def test_a_collector_that_hangs_costs_stopping_two_seconds_at_most(
    start: Callable[..., Telemetry], bus: EventBus, collector: Collector
) -> None:
    collector.stall()
    start(collector.url)
    started = time.perf_counter()
    bus.stop()

    assert time.perf_counter() - started < 3.0


@pytest.mark.timing
def test_a_first_message_that_hangs_or_raises_delays_no_start(
    start: Callable[..., Telemetry], bus: EventBus, collector: Collector
) -> None:
    go_on = threading.Event()

    def hang() -> UsageMessage:
        go_on.wait(30)
        raise OSError("no such device")

    started = time.perf_counter()
    start(collector.url, first_messages=(hang,))
    start_s = time.perf_counter() - started
    go_on.set()
    collector.wait_for("MetadataMessage")

    assert start_s < 0.05


def test_a_start_that_fails_is_told_and_harms_nobody(
    start: Callable[..., Telemetry], bus: EventBus, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    bus.stop()
    telemetry = start(collector.url)

    assert telemetry.status() == {
        "on": False,
        "reason": "it could not be started; see the log",
        "endpoint": "",
        "last": None,
    }
    assert caplog.messages == ["usage telemetry: start failed; the next errors there are only counted"]


def test_what_was_sent_is_in_the_metrics_and_the_status(
    start: Callable[..., Telemetry], bus: EventBus, metrics: CacheMetrics, collector: Collector
) -> None:
    telemetry = start(collector.url)
    bus.stop()
    sent = metrics.registry.get_sample_value(
        "lmcache:usage_messages_total", {"message": "ContinuousContextMessage", "outcome": "sent"}
    )

    assert sent == 1
    assert telemetry.status()["last"]["reason"] == ""
    assert telemetry.status()["endpoint"] == str(collector.url)


def test_the_log_and_the_status_show_no_credentials(
    start: Callable[..., Telemetry],
    bus: EventBus,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    caplog.set_level("DEBUG")
    telemetry = start(StoreURL.parse(f"http://me:hunter2@127.0.0.1:{collector.port}"))
    bus.stop()
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]

    assert collector.requests
    assert "hunter2" not in "".join([caplog.text, str(telemetry.status()), *files])
