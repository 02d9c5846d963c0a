"""A running LMCache, as health checks of this project's plugins see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmcache.v1.periodic_thread import PeriodicThreadRegistry
from lmcache.v1.storage_backend.remote_backend import RemoteBackend

from lmcache_core import Loaded, LocalUsage, PluginSettings, StorageControl, ThreadReport, WriteBehindUsage
from lmcache_plugins.upstream.absence import AbsentHereError
from lmcache_plugins.upstream.health_keys import HealthKeys
from lmcache_plugins.upstream.remote import RemoteTier


class LMCacheView:
    """`lmcache_core.CacheView` over an ``LMCacheManager``, as far as that can fill it.

    What LMCache does not have raises `AbsentHereError` as soon as it is touched, so that a check which
    needs it is not made at all.

    Args:
        manager: LMCache's.
        loaded: This project's plugins and configuration.
    """

    def __init__(self, manager: Any, loaded: Loaded) -> None:
        self._manager = manager
        self._values = loaded.configuration.values
        self.health_options = HealthKeys.of(manager.config.extra_config, self._values.extra_config)
        self.backends: tuple[str, ...] = ()
        self.tiers: tuple[RemoteTier, ...] = ()
        storage = getattr(manager.lmcache_engine, "storage_manager", None)
        if storage is not None:
            self.backends = tuple(storage.storage_backends)
            self.tiers = tuple(
                RemoteTier(name, backend, self.health_options)
                for name, backend in storage.storage_backends.items()
                if isinstance(backend, RemoteBackend)
            )

    def settings(self, table: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""
        return self._values.extra_config.table(table)

    @property
    def labels(self) -> Mapping[str, str]:
        """Of LMCache's instance: ``instance_id``, ``model_name``, ``worker_id``, ``role``."""
        metadata = self._manager.lmcache_engine_metadata
        return {
            "instance_id": str(self._manager.config.lmcache_instance_id or ""),
            "model_name": str(getattr(metadata, "model_name", "")),
            "worker_id": str(getattr(metadata, "worker_id", 0)),
            "role": str(getattr(metadata, "role", None) or "worker"),
        }

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how LMCache's periodic threads fare, but for those that were never started or were told to stop."""
        started = [one for one in PeriodicThreadRegistry.get_instance().get_all() if one.is_running or one.total_runs]
        return [_report(thread) for thread in started if not thread.stop_requested]

    @property
    def storage(self) -> StorageControl:
        """LMCache's monitor throws the switches."""
        raise AbsentHereError("storage")

    @property
    def local_usage(self) -> Callable[[], LocalUsage]:
        """LMCache counts its local backend in other terms."""
        raise AbsentHereError("local_usage")

    @property
    def write_behind(self) -> Callable[[], Sequence[WriteBehindUsage]]:
        """LMCache has no bounded queue in front of its backends."""
        raise AbsentHereError("write_behind")


def _report(thread: Any) -> ThreadReport:
    last_s, summary = thread.last_run_time, thread.last_summary
    return ThreadReport(
        name=thread.name,
        level=thread.level.value,
        is_alive=thread.is_running,
        silent_s=max(0.0, time.time() - last_s) if last_s else 0.0,
        interval_s=thread.interval,
        reason=summary.message if summary is not None and not summary.success else "",
    )
