"""The connector without an engine: every hook, in every way that it can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.engines.pair import (
    NAMES,
    MambaSpec,
    Pair,
    SlidingWindowSpec,
    a_request,
    a_step,
    idle_step,
    kv_cache_config,
    the_blocks,
    vllm_config,
)
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, supports_hma

from lmcache_plugins.vllm.connector import ConnectorStats, LMCoreConnector, StepMetadata
from lmcache_plugins.vllm.records import LoadOrder, StepPlan


@pytest.fixture
def pair_of() -> Iterator[Callable[..., Pair]]:
    with ExitStack() as opened:

        def make(*args: Any, **kwargs: Any) -> Pair:
            made = Pair(*args, **kwargs)
            opened.callback(made.close)
            return made

        yield make


def transfers(worker: LMCoreConnector) -> tuple[set[str], set[str]]:
    """Ask as vLLM does, step by step, until a load has ended; give the requests of those that have, and that failed."""
    while not (results := worker.get_transfer_results(set())).finished_recving:
        pass
    return results.finished_recving, results.failed_recving


def assert_neutral(pair: Pair) -> None:
    """Every hook of both sides gives the value that lets vLLM compute."""
    request = a_request()
    scheduler, worker = pair.scheduler, pair.worker
    scheduler.on_new_request(request)
    assert scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, the_blocks(1, 2), 0)
    metadata = scheduler.build_connector_meta(a_step())
    assert metadata == StepMetadata(StepPlan())
    worker.bind_connector_metadata(metadata)
    worker.handle_preemptions(metadata)
    worker.start_load_kv(None)
    worker.wait_for_layer_load(NAMES[0])
    worker.save_kv_layer(NAMES[0], torch.zeros(1), None)
    worker.wait_for_save()
    assert worker.get_finished({"r"}) == (None, None)
    assert worker.get_block_ids_with_load_errors() == set()
    assert worker.build_connector_worker_meta() is None
    scheduler.update_connector_output(SimpleNamespace())
    assert list(scheduler.take_events()) == []
    assert scheduler.request_finished(request, [1, 2]) == (False, None)
    assert scheduler.request_finished_all_groups(request, ([1, 2],)) == (False, None)
    assert scheduler.reset_cache() is None


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this connector logs; vLLM's base class greets too."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("lmcache")]


# -- it works ----------------------------------------------------------------


def test_blocks_come_back_as_they_were(pair_of: Callable[..., Pair]) -> None:
    pair = pair_of(vllm_config())
    before = {name: cache[[1, 2, 3]].clone() for name, cache in pair.caches.items()}
    assert pair.admit(a_request(), 1, 2, 3, 4) == (0, False)
    assert pair.run(a_step()) == (set(), set())
    pair.scheduler.request_finished(a_request(), [1, 2, 3, 4])
    for cache in pair.caches.values():
        cache.zero_()
    assert pair.admit(a_request(request_id="again"), 7, 5, 6, 4) == (96, True)
    assert pair.run(idle_step()) == ({"again"}, set())
    for name, cache in pair.caches.items():
        assert torch.equal(cache[[7, 5, 6]], before[name])
        assert not cache[4].any()


def test_it_is_made_with_and_without_names() -> None:
    config, blocks = vllm_config(), kv_cache_config()
    role = KVConnectorRole.SCHEDULER
    assert LMCoreConnector(config, role, blocks).role is role
    assert LMCoreConnector(vllm_config=config, role=role, kv_cache_config=blocks).role is role


def test_vllm_takes_it_for_a_best_effort_cache_of_its_hybrid_allocator() -> None:
    connector = LMCoreConnector(vllm_config(), KVConnectorRole.SCHEDULER, kv_cache_config())
    assert (connector.requires_kv_delivery, supports_hma(connector)) == (False, True)


def test_counts_travel_as_a_plain_dictionary(pair_of: Callable[..., Pair]) -> None:
    pair = pair_of(vllm_config())
    pair.admit(a_request(), 1, 2, 3, 4)
    pair.run(a_step())
    stats = pair.worker.get_kv_connector_stats()
    assert stats is not None
    carried = LMCoreConnector.build_kv_connector_stats(stats.to_dict())
    assert carried is not None
    assert carried.data["stored_tokens"] == 96
    assert carried.aggregate(ConnectorStats(data={"stored_tokens": 4})).reduce()["lmcache stored_tokens"] == 100
    assert pair.worker.get_kv_connector_stats() is None


def test_a_reset_reaches_the_workers_cache(pair_of: Callable[..., Pair]) -> None:
    pair = pair_of(vllm_config({"lmcache.async_lookup": False}))
    pair.admit(a_request(), 1, 2, 3, 4)
    pair.run(a_step())

    assert pair.scheduler.reset_cache() is True
    assert pair.scheduler.get_num_new_matched_tokens(a_request(request_id="s"), 0) == (0, False)


# -- it cannot begin ---------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"lmcache.chunk_sizes": 3, "lmcache.remot_url": "x"}, ["chunk_sizes", "remot_url"]),
        ({"lmcache.mode": "cloud"}, ["lmcache.mode: must be in_process or server, got 'cloud'"]),
        ({"lmcache.config_file": "/nowhere/lmcache.toml"}, ["/nowhere/lmcache.toml"]),
        ({"lmcache.remote_url": "carrier-pigeon://roof"}, ["carrier-pigeon"]),
        ({"lmcache.plugins": {"required": ["database"]}}, ["database"]),
        ({"lmcache.max_local_cpu_size": 0.0000001}, ["max_local_cpu_size"]),
    ],
)
def test_what_cannot_be_configured_is_a_no_op_that_says_why(
    pair_of: Callable[..., Pair], caplog: pytest.LogCaptureFixture, extra: dict[str, Any], reason: list[str]
) -> None:
    pair = pair_of(vllm_config(extra))
    assert_neutral(pair)
    (first, *_) = [message for message in caplog.messages if message.startswith("lmcache-core: nothing is cached, as")]
    for part in reason:
        assert part in first


def test_a_model_that_cannot_be_cached_is_a_no_op_that_says_why(
    pair_of: Callable[..., Pair], caplog: pytest.LogCaptureFixture
) -> None:
    assert_neutral(pair_of(vllm_config(), spec=MambaSpec))
    assert "is of kind 'mamba', whose state cannot be rebuilt" in caplog.text


def test_windowed_layers_need_loads_beside_the_steps(
    pair_of: Callable[..., Pair], caplog: pytest.LogCaptureFixture
) -> None:
    assert_neutral(pair_of(vllm_config({"lmcache.async_load": False}), spec=SlidingWindowSpec))
    assert (
        "lmcache-core: nothing is cached, as vllm: the model has sliding windows or several groups of layers, whose "
        "loads can be undone only beside the steps; set lmcache.async_load to true"
    ) in caplog.messages


def test_windowed_layers_need_a_vllm_that_computes_a_request_again(
    pair_of: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(KVConnectorBase_V1, "get_transfer_results")
    assert_neutral(pair_of(vllm_config(), spec=SlidingWindowSpec))
    assert (
        "lmcache-core: nothing is cached, as vllm: the model has sliding windows or several groups of layers, and this "
        "version of vllm cannot be told that a request's load failed; upgrade vllm"
    ) in caplog.messages


@pytest.mark.parametrize("part", ["open_cache", "rank_facts", "cache_facts", "PagedAdapter"])
def test_a_part_that_raises_at_the_start_is_a_no_op(
    pair_of: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{part} is broken")

    monkeypatch.setattr(f"lmcache_plugins.vllm.connector.{part}", broken)
    assert_neutral(pair_of(vllm_config()))
    assert f"{part} is broken" in caplog.text


def test_a_scheduler_that_cannot_reach_the_workers_is_a_no_op(
    pair_of: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no socket")

    monkeypatch.setattr("lmcache_plugins.vllm.connector.open_lookups", broken)
    assert_neutral(pair_of(vllm_config()))


def test_without_cards_the_scheduler_is_a_no_op(caplog: pytest.LogCaptureFixture) -> None:
    connector = LMCoreConnector(vllm_config(), KVConnectorRole.SCHEDULER, kv_cache_config())
    connector.set_xfer_handshake_metadata({})
    assert connector.get_num_new_matched_tokens(a_request(), 0) == (0, False)
    assert "lmcache-core: nothing is cached, as no worker said what it has" in caplog.messages


def test_an_absent_server_is_a_miss(pair_of: Callable[..., Pair], tmp_path: Path) -> None:
    pair = pair_of(vllm_config({"lmcache.mode": "server", "lmcache.server_address": f"ipc://{tmp_path}/none"}))
    assert pair.admit(a_request(), 1, 2, 3, 4) == (0, False)
    assert pair.run(a_step()) == (set(), set())


# -- it fails later ----------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "method", "hook"),
    [
        ("scheduler", "match", "get_num_new_matched_tokens"),
        ("scheduler", "allocated", "update_state_after_alloc"),
        ("scheduler", "saves", "build_connector_meta"),
        ("scheduler", "finished", "request_finished"),
        ("scheduler", "reset", "reset_cache"),
        ("worker", "start_loads", "start_load_kv"),
        ("worker", "save", "wait_for_save"),
        ("worker", "take_ended", "get_finished"),
        ("worker", "close", "shutdown"),
    ],
)
def test_a_failure_in_a_hook_stays_in_it_and_is_counted(
    pair_of: Callable[..., Pair], side: str, method: str, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(vllm_config())
    pair.admit(a_request(), 1, 2, 3, 4)
    pair.run(a_step())
    connector = getattr(pair, side)

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{method} is broken")

    whole = {name: cache[[5, 6, 7]].clone() for name, cache in pair.caches.items()}
    monkeypatch.setattr(getattr(connector, f"_{side}"), method, broken)
    connector.get_kv_connector_stats()
    found, _ = pair.admit(a_request(request_id="again"), 5, 6, 7, 4)
    ended, bad = pair.run(idle_step())
    pair.scheduler.request_finished(a_request(request_id="again"), [5, 6, 7, 4])
    pair.scheduler.reset_cache()
    counts = connector.get_kv_connector_stats()
    if method == "close":
        pair.worker.shutdown()
        counts = connector.get_kv_connector_stats()
    assert counts is not None
    assert counts.data[f"hook_errors:{hook}"] >= 1
    if found:  # vLLM waits for the load: it has to end, with its blocks or without them
        assert ended == {"again"}
        assert bad or not all(torch.equal(cache[[5, 6, 7]], whole[name]) for name, cache in pair.caches.items())


def test_a_load_of_windowed_layers_that_falls_short_is_told_by_its_request(pair_of: Callable[..., Pair]) -> None:
    pair = pair_of(vllm_config(), spec=SlidingWindowSpec)
    pair.admit(a_request(), 1, 2, 3, 4)
    pair.run(a_step())
    chunks = pair.worker._cache.chunks
    chunks.retrieve = lambda tokens, out, **how: np.arange(len(tokens)) < 64
    assert pair.admit(a_request(request_id="again"), 0, 5, 6, 7) == (96, True)
    metadata = pair.scheduler.build_connector_meta(idle_step())
    pair.worker.bind_connector_metadata(metadata)
    pair.worker.start_load_kv(None)
    assert transfers(pair.worker) == ({"again"}, {"again"})
    assert pair.worker.get_block_ids_with_load_errors() == set()


def test_a_load_of_full_attention_that_falls_short_is_told_by_its_blocks(pair_of: Callable[..., Pair]) -> None:
    worker = pair_of(vllm_config()).worker
    order = LoadOrder(request_id="r", tokens=torch.arange(64).numpy(), block_ids=((3, 4),), first_block=0)
    worker.bind_connector_metadata(StepMetadata(StepPlan(loads=(order,), idle=True)))
    worker.start_load_kv(None)
    assert transfers(worker) == ({"r"}, set())
    assert worker.get_block_ids_with_load_errors() == {3, 4}


def test_an_order_for_a_worker_that_caches_nothing_ends_empty() -> None:
    worker = LMCoreConnector(vllm_config({"lmcache.mode": "cloud"}), KVConnectorRole.WORKER, kv_cache_config())
    order = LoadOrder(request_id="r", tokens=torch.arange(64).numpy(), block_ids=((3, 4),), first_block=0)
    worker.bind_connector_metadata(StepMetadata(StepPlan(loads=(order,))))
    worker.start_load_kv(None)
    assert worker.get_finished(set()) == (None, {"r"})
    assert worker.get_block_ids_with_load_errors() == {3, 4}


# -- what is said at the start -----------------------------------------------


def test_another_failure_policy_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    LMCoreConnector(vllm_config(policy="fail"), KVConnectorRole.SCHEDULER, kv_cache_config())
    (message,) = ours(caplog)
    assert message == (
        "lmcache-core: kv_load_failure_policy is 'fail', so vllm ends a request with an error when its kv cannot be "
        "loaded, as when a store goes away between lookup and load; set it to 'recompute'"
    )


def test_keys_that_nobody_reads_are_named(caplog: pytest.LogCaptureFixture) -> None:
    LMCoreConnector(vllm_config({"chunk_size": 3}), KVConnectorRole.SCHEDULER, kv_cache_config())
    assert ours(caplog) == [
        "lmcache-core: kv_connector_extra_config has chunk_size, which nobody reads; its keys begin with 'lmcache.'"
    ]


def test_loads_are_beside_the_steps_where_vllm_schedules_ahead(caplog: pytest.LogCaptureFixture) -> None:
    config = vllm_config({"lmcache.async_load": False})
    config.scheduler_config = SimpleNamespace(async_scheduling=True)
    LMCoreConnector(config, KVConnectorRole.SCHEDULER, kv_cache_config())
    assert ours(caplog) == ["lmcache-core: lmcache.async_load is on, as vllm schedules asynchronously"]


def test_the_mode_may_come_from_the_file(pair_of: Callable[..., Pair], tmp_path: Path) -> None:
    file = tmp_path / "lmcache.toml"
    file.write_text(f'mode = "server"\nserver_address = "ipc://{tmp_path}/none"\n')
    pair = pair_of(vllm_config({"lmcache.config_file": str(file)}))
    assert pair.worker.get_handshake_metadata().card.address == ""
    assert pair.admit(a_request(), 1, 2, 3, 4) == (0, False)


def test_vllm_knows_it_by_its_name_as_its_multi_connector_asks() -> None:
    assert KVConnectorFactory.get_connector_class_by_name("LMCoreConnector") is LMCoreConnector
