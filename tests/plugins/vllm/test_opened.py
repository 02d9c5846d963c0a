"""The cache behind a worker, and the scheduler's way to it, without vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmcache_core import CacheManager, ConfigError, KVLayout, PluginSet
from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_plugins.vllm.facts import CacheFacts, RankFacts
from lmcache_plugins.vllm.opened import OpenedCache, open_cache, open_lookups
from lmcache_plugins.vllm.options import ConnectorOptions
from lmcache_plugins.vllm.records import WorkerCard

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
KEYS = {"chunk_size": 16, "max_local_cpu_size": 0.01}

Open = Callable[..., tuple[OpenedCache, WorkerCard]]


@pytest.fixture
def open_worker() -> Iterator[Open]:
    with ExitStack() as opened:

        def make(rank: int = 0, world_size: int = 1, **options: Any) -> tuple[OpenedCache, WorkerCard]:
            cache = open_cache(
                ConnectorOptions(**{"overrides": KEYS, **options}),
                CacheFacts(layout=LAYOUT, layer_names=("a", "b"), num_blocks=4, block_tokens=4),
                RankFacts(model_name="m", model_type="", rank=rank, world_size=world_size),
                lambda chunk_tokens: TensorAdapter(LAYOUT, chunk_tokens),  # type: ignore[arg-type,return-value]
            )
            opened.callback(cache.close)
            card = WorkerCard(
                layout=LAYOUT,
                model_name="m",
                rank=rank,
                world_size=world_size,
                block_tokens=4,
                address=cache.address,
                plugins=cache.plugins,
            )
            return cache, card

        yield make


def another(plugins: PluginSet) -> PluginSet:
    return PluginSet((*plugins.entries, ("zz", "acme-zz", "1.0")))


def test_a_worker_says_which_plugins_it_has(open_worker: Open) -> None:
    cache, _ = open_worker()

    assert cache.manager is not None
    assert cache.plugins == cache.manager.registry.in_force()
    assert cache.plugins.digest


def test_workers_and_scheduler_with_the_same_plugins_begin(open_worker: Open) -> None:
    cards = [open_worker(rank, 2)[1] for rank in (0, 1)]

    with closing(open_lookups(ConnectorOptions(overrides=KEYS), cards)):
        pass


def test_a_worker_with_other_plugins_is_an_error(open_worker: Open) -> None:
    first, second = (open_worker(rank, 2)[1] for rank in (0, 1))

    with pytest.raises(ConfigError) as refusal:
        open_lookups(ConnectorOptions(overrides=KEYS), [first, replace(second, plugins=another(second.plugins))])
    assert str(refusal.value) == (
        "vllm: the processes have not the same plugins: 'zz' of acme-zz only with rank 1; "
        "install the same packages for all"
    )


def test_a_scheduler_with_other_plugins_is_an_error(open_worker: Open) -> None:
    _, card = open_worker()

    with pytest.raises(ConfigError) as refusal:
        open_lookups(ConnectorOptions(overrides=KEYS), [replace(card, plugins=another(card.plugins))])
    assert str(refusal.value) == (
        "vllm: the processes have not the same plugins: 'zz' of acme-zz only with rank 0; "
        "install the same packages for all"
    )


def test_a_worker_that_does_not_say_is_none(open_worker: Open) -> None:
    _, card = open_worker()

    open_lookups(ConnectorOptions(overrides=KEYS), [replace(card, plugins=PluginSet())]).close()


@pytest.mark.parametrize("named_by", ["option", "file", "override"])
def test_a_servers_cache_is_not_built_here(
    named_by: str, open_worker: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a cache was built in this process")

    monkeypatch.setattr(CacheManager, "from_config", refuse)
    file = tmp_path / "server.toml"
    file.write_text('mode = "server"\n' if named_by == "file" else "")
    overrides = {**KEYS, "server_address": f"ipc://{tmp_path}/s.sock"}
    if named_by == "override":
        overrides["mode"] = "server"

    cache, _ = open_worker(mode="server" if named_by == "option" else "", config_file=str(file), overrides=overrides)

    assert (cache.manager, cache.address) == (None, "")
    assert cache.plugins.digest


def test_the_option_wins_over_the_file(open_worker: Open, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('mode = "server"\n')

    cache, _ = open_worker(mode="in_process", config_file=str(file))

    assert cache.manager is not None
