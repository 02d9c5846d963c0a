"""The cache in the engine's own process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from lmcache_core.access.local import LocalAccess
from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.app.host import CacheHost, HostRole, check_room
from lmcache_core.app.setup import load_logged
from lmcache_core.config.model import CoreConfig
from lmcache_core.contracts.cache import KVAdapter
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.engine import CacheEngine
from lmcache_core.forks import tell_after_fork
from lmcache_core.instance import Instance
from lmcache_core.loading import Loaded
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.telemetry.engine_message import engine_message
from lmcache_core.telemetry.start import Telemetry

log = logging.getLogger(__name__)

_DRAIN_S = 10.0
"""Longest that stopping waits for chunks still to be written."""


class CacheManager:
    """One cache instance: engine, tiers, health, metrics and their threads.

    A context manager. `start` never raises because a store is down; a fault while the parts are
    built leaves an instance that only recomputes and says why (`init_failed_reason`).

    Attributes:
        engine: What an inference engine calls.
        access: Its chunks.
        instance: Who it is: model, shape, rank.
        host: Everything around it.
        health: The monitor: `health.report()`.
        overrides: Operators' orders to leave a store out: `overrides.add(...)`.
        oversight: Overrides and history: `oversight.history.latest()`.
        storage: The tiers.
        metrics: Prometheus families, `metrics.registry`.
        bus: Events.
        http: The HTTP pages, or None; `http.address` says where.
        grpc: The gRPC health service, or None; `grpc.address` says where.
        config: The validated configuration with each value's origin.
        registry: The plugins.
        init_failed_reason: ``""``, or why this instance only recomputes.
    """

    def __init__(
        self, loaded: Loaded, instance: Instance, make_adapter: Callable[[int], KVAdapter] | None = None
    ) -> None:
        self.config = loaded.configuration
        self.registry = loaded.registry
        self.instance = instance
        values = loaded.configuration.values
        chunk_format = instance.format()
        check_room(values, chunk_format.codec.frame_bytes)
        self.host = CacheHost(loaded, _role(values, instance))
        self.metrics, self.bus, self.storage = self.host.metrics, self.host.bus, self.host.storage
        self.oversight, self.overrides = self.host.oversight, self.host.oversight.overrides
        self.health = self.host.health
        self.is_healthy = self.health.is_healthy
        self.http, self.grpc = self.host.fronts.http, self.host.fronts.grpc
        self.init_failed_reason = self.host.init_failed_reason
        self.access = LocalAccess(
            self.storage,
            chunk_format,
            is_healthy=self.health.is_healthy,
            journal=self.host.journal,
            metrics=self.metrics,
            loaders=self.host.loaders,
            engine_id=instance.instance_id,
        )
        self.engine = CacheEngine(
            self.access,
            make_adapter=make_adapter or (lambda chunk_tokens: TensorAdapter(instance.layout, chunk_tokens)),
            metrics=self.metrics,
            timeout_s=values.blocking_timeout_secs,
        )
        tell_after_fork(self.engine, CacheEngine.disown)

    @classmethod
    def from_config(
        cls,
        config_file: str | Path | None = None,
        *,
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        layout: KVLayout,
        model_name: str,
        world_size: int = 1,
        rank: int = 0,
        model_type: str = "",
        block_tokens: int = 1,
        adapter: Callable[[int], KVAdapter] | None = None,
    ) -> CacheManager:
        """Build an instance from a file, ``LMCACHE_*`` variables and overrides.

        Args:
            config_file: Else ``LMCACHE_CONFIG_FILE``, else ``./lmcache.toml`` where there is one.
            overrides: Keys that win over every other source.
            environ: Instead of the process's own.
            layout: Shape of the KV that will be stored.
            model_name: As the engine names the model; part of every key.
            world_size: Ranks that split the KV.
            rank: Which of them this is.
            model_type: As the model's own configuration names its kind, such as ``llama``; for usage metrics.
            block_tokens: The engine's block size; a chunk is the multiple of it nearest to ``chunk_size``.
            adapter: Makes what moves KV between the engine's memory and chunks of so many tokens; plain
                tensors where it is left out.

        Raises:
            ConfigError: Names all offenders at once.
            PluginError: A required plugin did not load, or two plugins clash.
            LayoutError: The layout cannot be cached correctly.
        """
        loaded = load_logged(config_file, overrides, environ)
        instance = Instance.of(
            loaded.configuration.values,
            layout=layout,
            model_name=model_name,
            world_size=world_size,
            rank=rank,
            model_type=model_type,
            block_tokens=block_tokens,
        )
        return cls(loaded, instance, adapter)

    # -- life -----------------------------------------------------------------

    def start(self) -> None:
        """Start the threads and wait for the first round of checks, at most about one check's time.

        Raises:
            PluginError: A required plugin could not say what it subscribes to or measures; nothing runs.
        """
        self.host.start()
        namespace = self.access.format.namespaces("", "")[0]
        self.host.journal.registered(namespace, self.instance.layout, self.instance.model_type)

    def stop(self) -> None:
        """Refuse new calls, write what waits to be written for at most ten seconds, let go of everything."""
        self.host.stop(_DRAIN_S)

    def __enter__(self) -> CacheManager:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def tiers(self) -> Sequence[GuardedTier]:
        """The stores behind tier 0, in order."""
        return self.storage.tiers

    @property
    def usage(self) -> Telemetry | None:
        """Usage telemetry, None before `start`; `usage.status()`."""
        return self.host.usage


def _role(values: CoreConfig, instance: Instance) -> HostRole:
    return HostRole(
        labels=instance.labels,
        rank=instance.rank,
        own_rank=instance.own_rank,
        deployment_mode="single_process",
        describe=lambda: engine_message(
            values,
            instance.layout,
            model_name=instance.model_name,
            world_size=instance.world_size,
            rank=instance.rank,
        ),
    )
