"""The cache behind a worker or the scheduler: in this process, or a server's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lmcache_core import (
    CacheClient,
    CacheManager,
    ConfigError,
    KVLayout,
    LayoutError,
    PluginSet,
    connect,
    listen,
    read_mode,
)
from lmcache_plugins.vllm.facts import CacheFacts, RankFacts
from lmcache_plugins.vllm.lookups import Lookups, RankLookups
from lmcache_plugins.vllm.options import ConnectorOptions
from lmcache_plugins.vllm.paged import PagedAdapter
from lmcache_plugins.vllm.records import WorkerCard
from lmcache_plugins.vllm.socket_folder import make_socket_folder
from lmcache_plugins.vllm.worker import Chunks


@dataclass(frozen=True, slots=True)
class OpenedCache:
    """A worker's cache.

    Attributes:
        chunks: What stores and retrieves.
        manager: Its owner, where the cache is in this process; None where a server has it.
        address: Where its lookups are answered; ``""`` where a server does.
        close: Lets go of it.
        plugins: Those in force in this process.
    """

    chunks: Chunks
    manager: CacheManager | None
    address: str
    close: Callable[[], None]
    plugins: PluginSet


@dataclass(frozen=True, slots=True)
class OpenedLookups:
    """The scheduler's way to the caches of all workers."""

    lookups: Lookups
    close: Callable[[], None]


def open_cache(
    options: ConnectorOptions, cache: CacheFacts, rank: RankFacts, make_adapter: Callable[[int], PagedAdapter]
) -> OpenedCache:
    """Open a worker's cache.

    Raises:
        LMCacheError: The configuration, a required plugin or the layout; says which.
    """
    same: dict[str, Any] = {
        "overrides": dict(options.overrides),
        "layout": cache.layout,
        "model_name": rank.model_name,
        "model_type": rank.model_type,
        "world_size": rank.world_size,
        "rank": rank.rank,
        "block_tokens": cache.block_tokens,
        "adapter": make_adapter,
    }
    mode = options.mode or read_mode(options.config_file, overrides=options.overrides)
    if mode == "server":
        client = connect(options.config_file, **same)
        return OpenedCache(client, None, "", client.close, client.plugins)
    return _open_here(CacheManager.from_config(options.config_file, **same), rank.rank)


def _open_here(manager: CacheManager, rank: int) -> OpenedCache:
    manager.start()
    folder = make_socket_folder()
    address = f"ipc://{folder}/rank{rank}.sock"
    try:
        desk = listen(manager, address)
    except BaseException:
        manager.stop()
        raise

    def close() -> None:
        desk.stop()
        manager.stop()
        shutil.rmtree(folder, ignore_errors=True)

    return OpenedCache(manager.engine, manager, address, close, manager.registry.in_force())


def open_lookups(options: ConnectorOptions, cards: Sequence[WorkerCard]) -> OpenedLookups:
    """Open the scheduler's way to the caches of these workers, at least one, whose cards have no reason.

    Raises:
        ConfigError: The configuration is wrong, or the caches are the workers' and their plugins are not the same.
        PluginError: A required plugin did not load.
        LayoutError: The workers' layouts differ, so that no one lookup can stand for all.
    """
    first = cards[0]
    layout = first.layout
    if layout is None or any(_unnamed(card.layout) != _unnamed(layout) for card in cards):
        raise LayoutError("vllm: the workers' kv layouts differ, as with a pipeline of unequal stages")
    if first.address:
        for card in cards[1:]:
            _check_plugins(first.plugins, f"with rank {first.rank}", card)
    same: dict[str, Any] = {
        "overrides": dict(options.overrides),
        "layout": layout,
        "model_name": first.model_name,
        "model_type": first.model_type,
        "world_size": first.world_size,
        "block_tokens": first.block_tokens,
    }
    if not first.address:
        client = connect(options.config_file, **same, ranks=[card.rank for card in cards])
        return OpenedLookups(client, client.close)
    clients = [
        connect(options.config_file, **same, address=card.address, rank=card.rank, ranks=[card.rank]) for card in cards
    ]

    def close() -> None:
        for client in clients:
            client.close()

    try:
        _check_plugins(clients[0].plugins, "in the scheduler's process", first)
    except ConfigError:
        close()
        raise
    return OpenedLookups(_lookups_of(clients), close)


def _check_plugins(plugins: PluginSet, where: str, card: WorkerCard) -> None:
    difference = plugins.difference(card.plugins, here=where, there=f"with rank {card.rank}")
    if difference:
        raise ConfigError(
            f"vllm: the processes have not the same plugins: {difference}; install the same packages for all"
        )


def _unnamed(layout: KVLayout | None) -> KVLayout | None:
    """Give the layout without its groups' names, which are of the layers of one stage."""
    if layout is None:
        return None
    return replace(layout, groups=tuple(replace(group, name="") for group in layout.groups))


def _lookups_of(clients: Sequence[CacheClient]) -> Lookups:
    return clients[0] if len(clients) == 1 else RankLookups(clients)
