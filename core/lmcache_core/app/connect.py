"""The client of a cache server, for an engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.app.setup import load_logged
from lmcache_core.client.cache_client import CacheClient
from lmcache_core.client.wish import Wish
from lmcache_core.contracts.cache import KVAdapter
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.version import __version__
from lmcache_core.wire.address import default_address, parse_address


def connect(
    config_file: str | Path | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    address: str | None = None,
    layout: KVLayout,
    model_name: str,
    world_size: int = 1,
    rank: int = 0,
    ranks: Sequence[int] | None = None,
    model_type: str = "",
    block_tokens: int = 1,
    adapter: Callable[[int], KVAdapter] | None = None,
) -> CacheClient:
    """Make a client of ``lmcachectl serve``; an absent server is no error, the client finds it when it comes.

    Args:
        config_file: Else ``LMCACHE_CONFIG_FILE``, else ``./lmcache.toml`` where there is one.
        overrides: Keys that win over every other source.
        environ: Instead of the process's own.
        address: Instead of the configured ``server_address``.
        layout: Shape of the KV that will be stored.
        model_name: As the engine names the model; part of every key.
        world_size: Ranks that split the KV.
        rank: Which of them this is.
        ranks: Of a scheduler that only looks up: all ranks it asks for; the smallest prefix counts.
        model_type: As the model's own configuration names its kind; for usage metrics.
        block_tokens: The engine's block size; a chunk is whole blocks.
        adapter: Makes what moves KV between the engine's memory and chunks of so many tokens; plain
            tensors where it is left out.

    Raises:
        ConfigError: Names all offenders at once.
        PluginError: A required plugin did not load, or two plugins clash.
    """
    loaded = load_logged(config_file, overrides, environ)
    values = loaded.configuration.values
    wish = Wish(
        layout=layout,
        model_name=model_name,
        model_type=model_type,
        world_size=world_size,
        ranks=(rank,) if ranks is None else tuple(ranks),
        block_tokens=block_tokens,
        plugins=loaded.registry.in_force(),
    )
    role = "worker" if ranks is None else "scheduler"
    return CacheClient(
        parse_address(address or values.server_address or default_address()),
        wish,
        make_adapter=adapter or (lambda chunk_tokens: TensorAdapter(layout, chunk_tokens)),
        metrics=_metrics(values.lmcache_instance_id or "", model_name, rank, role),
        timeout_s=values.blocking_timeout_secs,
        name=f"{role} {rank}",
    )


def _metrics(instance_id: str, model_name: str, rank: int, role: str) -> CacheMetrics:
    metrics = CacheMetrics()
    metrics.instance_info.labels(
        instance_id=instance_id, model_name=model_name, worker_id=str(rank), role=role, version=__version__
    ).set(1)
    return metrics
