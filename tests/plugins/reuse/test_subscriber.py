"""The subscriber on a real bus and in a whole cache."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmcache_core import CacheManager, ChunkReuseTracker, Event, EventType, KVLayout, ReuseReports, TelemetryContext
from lmcache_core.telemetry.reuse_reports import read_report
from lmcache_plugins.reuse.hooks import lmcache_event_subscribers
from lmcache_plugins.reuse.settings import ReuseSettings
from lmcache_plugins.reuse.subscriber import ReuseSubscriber

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_size=8, dtype="float32")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Callable[..., ReuseSubscriber]:
    def make(folder: Path | None = None, **options: float) -> ReuseSubscriber:
        tracker = ChunkReuseTracker(sample_rate=1, clock=clock, **options)
        reports = ReuseReports(folder) if folder else None
        return ReuseSubscriber(tracker, reports, report_interval_s=60.0, chunk_tokens=16, clock=clock)

    return make


def look_up(subscriber: ReuseSubscriber, *numbers: int, request_id: str = "", **metadata: object) -> None:
    event = Event(
        EventType.MP_LOOKUP,
        0.0,
        {"request_id": request_id, "chunk_hashes": tuple(bytes([number]) * 32 for number in numbers), **metadata},
    )
    subscriber.get_subscriptions()[EventType.MP_LOOKUP](event)


def test_lookups_become_a_message(make: Callable[..., ReuseSubscriber], clock: Clock) -> None:
    subscriber = make()
    look_up(subscriber, 1, 2)
    clock.now_s = 30.0
    look_up(subscriber, 1, 2, 3, found_count=1)
    (message,) = subscriber.usage_messages()
    assert (message.sampled_accesses, message.seen_before_accesses, message.stored_accesses) == (5, 2, 1)
    assert (message.sample_rate, message.tracked, message.horizon_seconds) == (1.0, 3, 30.0)
    assert message.inter_reuse_gap_histogram["60"] == 2


def test_a_message_has_its_interval_only(make: Callable[..., ReuseSubscriber]) -> None:
    subscriber = make()
    look_up(subscriber, 1)
    list(subscriber.usage_messages())
    look_up(subscriber, 1)
    (message,) = subscriber.usage_messages()
    assert (message.sampled_accesses, message.seen_before_accesses) == (1, 1)
    (message,) = subscriber.usage_messages()
    assert message.sampled_accesses == 0


def test_an_idle_interval_still_retires(make: Callable[..., ReuseSubscriber], clock: Clock) -> None:
    subscriber = make(idle_ttl_s=100.0)
    look_up(subscriber, 1)
    clock.now_s = 101.0
    (message,) = subscriber.usage_messages()
    assert (message.tracked, message.retired_idle) == (0, 1)


def test_a_schedulers_retry_is_no_reuse(make: Callable[..., ReuseSubscriber]) -> None:
    subscriber = make()
    for _ in range(5):
        look_up(subscriber, 1, 2, request_id="r1")
    look_up(subscriber, 1, 2, 3, request_id="r1")
    (message,) = subscriber.usage_messages()
    assert (message.sampled_accesses, message.seen_before_accesses) == (3, 0)


def test_two_tenants_do_not_meet(make: Callable[..., ReuseSubscriber]) -> None:
    subscriber = make()
    look_up(subscriber, 1, cache_salt="a")
    look_up(subscriber, 1, cache_salt="b")
    (message,) = subscriber.usage_messages()
    assert message.seen_before_accesses == 0


def test_a_report_is_left_at_each_interval_and_at_the_end(
    make: Callable[..., ReuseSubscriber], clock: Clock, tmp_path: Path
) -> None:
    subscriber = make(tmp_path)
    look_up(subscriber, 1)
    assert list(tmp_path.iterdir()) == []
    clock.now_s = 60.0
    look_up(subscriber, 1)
    (path,) = tmp_path.iterdir()
    assert read_report(path).totals.accesses == 2
    look_up(subscriber, 1)
    subscriber.shutdown()
    assert read_report(path).totals.accesses == 3


def test_a_folder_that_cannot_be_written_is_one_warning(
    make: Callable[..., ReuseSubscriber], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    subscriber = make(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        subscriber.shutdown()
        subscriber.shutdown()
    assert [record.getMessage() for record in caplog.records] == [
        f"the reuse report cannot be written to {tmp_path / 'file'}: [Errno 17] File exists: '{tmp_path / 'file'}'"
    ]


def test_a_cache_feeds_it_and_the_report_knows_the_chunks_size(tmp_path: Path) -> None:
    overrides = {
        "chunk_size": 16,
        "max_local_cpu_size": 0.01,
        "extra_config": {"reuse": {"enabled": True, "sample_rate": 1, "report_folder": str(tmp_path)}},
    }
    manager = CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m")
    tokens = np.arange(64)
    with manager:
        for salt in ("", "", "tenant"):
            manager.engine.lookup(tokens, salt=salt)
            manager.engine.store(tokens, torch.zeros(LAYOUT.kv_shape(64)), salt=salt)
    (path,) = tmp_path.iterdir()
    snapshot = read_report(path)
    assert (snapshot.totals.accesses, snapshot.totals.served, snapshot.totals.seen_before) == (12, 4, 4)
    assert snapshot.chunk_bytes == 2 * 2 * 16 * 8 * 4
    assert snapshot.tenants == ((8, 4), (4, 0))


def test_without_its_switch_nobody_listens() -> None:
    contexts = [
        TelemetryContext(chunk_tokens=16, deployment_mode="single_process"),
        TelemetryContext(chunk_tokens=16, deployment_mode="single_process", settings=lambda table: ReuseSettings()),
    ]
    assert [list(lmcache_event_subscribers(context)) for context in contexts] == [[], []]
