"""The only place that builds objects and joins them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.codec.frame import FrameCodec
from lmcache_core.config.model import CoreConfig, ExtraConfig
from lmcache_core.contracts.control import LocalUsage, ThreadReport, WriteBehindUsage
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.contracts.metric import TelemetryContext
from lmcache_core.contracts.report import HealthReport
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.engine import CacheEngine
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.events.attach import attach_subscribers
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.instance import Instance
from lmcache_core.loading import Loaded, load
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena
from lmcache_core.metering import build_telemetry
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.metrics.health import HealthCollector
from lmcache_core.metrics.threads import PeriodicThreadCollector
from lmcache_core.ops.fronts import Fronts, build_fronts
from lmcache_core.ops.oversight import Oversight
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.manager import StorageManager
from lmcache_core.storage.sweeper import LeaseSweeper
from lmcache_core.telemetry.start import Telemetry
from lmcache_core.threads import PeriodicThreadRegistry
from lmcache_core.tiers import build_tiers
from lmcache_core.version import __version__

log = logging.getLogger(__name__)

_GIB = 1 << 30
_DRAIN_S = 10.0
"""Longest that stopping waits for chunks still to be written."""

_FIRST_ROUND_SLACK_S = 1.0


class CacheManager:
    """One cache instance: engine, tiers, health, metrics and their threads.

    A context manager. `start` never raises because a store is down; a fault while the parts are
    built leaves an instance that only recomputes and says why (`init_failed_reason`).

    Attributes:
        engine: What an inference engine calls.
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
        usage: Usage telemetry, None before `start`; `usage.status()`.
        init_failed_reason: ``""``, or why this instance only recomputes.
    """

    def __init__(self, loaded: Loaded, instance: Instance) -> None:
        self._loaded = loaded
        self.config = loaded.configuration
        self.registry = loaded.registry
        self._values = loaded.configuration.values
        self._instance = instance
        self._threads = PeriodicThreadRegistry()
        self.metrics = CacheMetrics()
        self.metrics.instance_info.labels(**self.labels, version=__version__).set(1)
        self.metrics.registry.register(PeriodicThreadCollector(self._threads))
        self.bus = EventBus(self.metrics)
        self._codec = FrameCodec(instance.layout, self._values.chunk_size)
        self._journal = Journal(self.bus, chunk_tokens=self._values.chunk_size, chunk_bytes=self._codec.payload_bytes)
        self.init_failed_reason = ""
        self.usage: Telemetry | None = None
        self._plugins_failed = dict(loaded.registry.failed())
        self.storage = self._build_storage(loaded)
        self.oversight = Oversight(
            self._values,
            storage=self.storage,
            metrics=self.metrics,
            threads=self._threads,
            rank=self._instance.own_rank,
        )
        self.overrides = self.oversight.overrides
        self.health = self._build_monitor()
        self.metrics.registry.register(HealthCollector(self.health))
        self.is_healthy = self.health.is_healthy
        self.engine = self._build_engine()
        self._sweeper = LeaseSweeper(self.storage, self._values.pin_timeout_sec, self._threads)
        self._fronts = self._build_fronts()
        self.http, self.grpc = self._fronts.http, self._fronts.grpc
        for name in self._plugins_failed:
            self.metrics.plugin_load_failed.labels(name).set(1)

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

        Raises:
            ConfigError: Names all offenders at once.
            PluginError: A required plugin did not load, or two plugins clash.
            LayoutError: The layout cannot be cached correctly.
        """
        path = Path(config_file) if config_file is not None else None
        loaded = load(config_file=path, overrides=overrides, environ=environ)
        logging.getLogger("lmcache_core").setLevel(loaded.configuration.values.log_level)
        for warning in loaded.configuration.warnings:
            log.warning("%s", warning)
        instance = Instance.of(
            loaded.configuration.values,
            layout=layout,
            model_name=model_name,
            world_size=world_size,
            rank=rank,
            model_type=model_type,
        )
        return cls(loaded, instance)

    # -- life -----------------------------------------------------------------

    def start(self) -> None:
        """Start the threads and wait for the first round of checks, at most about one check's time."""
        self._subscribe()
        self._journal.registered(self._instance.namespace(""), self._instance.layout, self._instance.model_type)
        self._sweeper.start()
        self.oversight.start(self._wake_monitor)
        self.health.start()
        self._fronts.start()
        options = self._values.extra_config
        if not self.health.wait_first_round(options.ping_timeout + _FIRST_ROUND_SLACK_S):
            log.warning("the first round of health checks is still running; the cache serves when it has passed")

    def stop(self) -> None:
        """Refuse new calls, write what waits to be written for at most ten seconds, let go of everything."""
        self.health.stop()
        self._sweeper.stop()
        self.oversight.stop()
        self.storage.close(_DRAIN_S)
        self.bus.stop()
        self._fronts.stop()

    def __enter__(self) -> CacheManager:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- contracts.control.CacheView, for health checks ----------------------

    @property
    def tiers(self) -> Sequence[GuardedTier]:
        """The stores behind tier 0, in order."""
        return self.storage.tiers

    @property
    def health_options(self) -> ExtraConfig:
        """The global health keys."""
        return self._values.extra_config

    @property
    def labels(self) -> Mapping[str, str]:
        """Of this instance: ``instance_id``, ``model_name``, ``worker_id``, ``role``."""
        return self._instance.labels

    def local_usage(self) -> LocalUsage:
        """Tell how tier 0 fares."""
        return self.storage.local_usage()

    def write_behind(self) -> Sequence[WriteBehindUsage]:
        """Tell how the queue in front of each store fares."""
        return self.storage.write_behind()

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how the background threads fare."""
        return [*self._threads.reports(), *self.bus.threads()]

    def settings(self, table: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""
        return self._values.extra_config.table(table)

    # -- building -------------------------------------------------------------

    def _build_storage(self, loaded: Loaded) -> StorageManager:
        codec = self._codec
        _check_room(self._values, codec.frame_bytes)
        try:
            arena = Arena(int(self._values.max_local_cpu_size * _GIB))
            tiers = build_tiers(
                loaded,
                frame_bytes=codec.frame_bytes,
                metrics=self.metrics,
                journal=self._journal,
                on_failure=self._wake_monitor,
                rank=self._instance.own_rank,
            )
        except (ConfigError, PluginError):
            raise
        except Exception as error:  # the border of initialisation: the engine goes on without a cache
            log.exception("the cache could not be built; everything is recomputed")
            self.init_failed_reason = f"{type(error).__name__}: {error}"
            arena, tiers = Arena(ALIGNMENT_BYTES), []
        return StorageManager(
            local=LocalCPUBackend(
                arena,
                frame_bytes=codec.frame_bytes,
                use_hot=self._values.local_cpu,
                metrics=self.metrics,
                journal=self._journal,
            ),
            tiers=tiers,
            codec=codec,
            metrics=self.metrics,
            journal=self._journal,
            write_behind_chunks=self._values.write_behind_chunks,
            lease_ttl_s=self._values.pin_timeout_sec,
        )

    def _build_monitor(self) -> HealthMonitor:
        policies: dict[str, FallbackPolicy] = {
            name: policy.value() for name, policy in self.registry.policies().items()
        }
        return HealthMonitor(
            checks=self._build_checks(),
            policies=policies,
            storage=self.storage,
            options=self._values.extra_config,
            metrics=self.metrics,
            on_change=self._tell_plugins,
            registry=self._threads,
            init_failed_reason=self.init_failed_reason,
            plugins_failed=self._plugins_failed,
            bypassed=self.storage.bypassed,
            backends=self.oversight.backends,
            tables=self._values.extra_config.checks,
        )

    def _build_checks(self) -> list[tuple[str, str, HealthCheck]]:
        checks: list[tuple[str, str, HealthCheck]] = []
        for declared in self.registry.health_checks():
            try:
                made = declared.value.create(self)
            except Exception as error:  # noqa: PERF203 - each plugin fails alone
                reason = f"{declared.value.__name__}.create raised {type(error).__name__}: {error}"
                if declared.plugin in self._values.plugins.required:
                    raise PluginError(plugin=declared.plugin, origin=declared.origin, reason=reason) from error
                log.exception("plugin %r (%s): %s; its checks do not run", declared.plugin, declared.origin, reason)
                self._plugins_failed[declared.plugin] = reason
            else:
                checks += [(declared.plugin, declared.origin, check) for check in made]
        return checks

    def _build_engine(self) -> CacheEngine:
        return CacheEngine(
            storage=self.storage,
            adapter=TensorAdapter(self._instance.layout, self._values.chunk_size),
            namespace=self._instance.namespace,
            is_healthy=self.health.is_healthy,
            journal=self._journal,
            metrics=self.metrics,
            timeout_s=self._values.blocking_timeout_secs,
        )

    def _build_fronts(self) -> Fronts:
        return build_fronts(
            self._values,
            monitor=self.health,
            metrics=self.metrics,
            threads=self._threads,
            oversight=self.oversight,
            backends=tuple(self.storage.backend_names()),
            rank=self._instance.rank,
        )

    def _subscribe(self) -> None:
        context = TelemetryContext(
            chunk_tokens=self._values.chunk_size, deployment_mode="single_process", settings=self.settings
        )
        declared_subscribers = self.registry.event_subscribers(context, on_hook_error=self._count_hook_error)
        self.usage = build_telemetry(
            self._loaded,
            storage=self.storage,
            instance=self._instance,
            bus=self.bus,
            threads=self._threads,
            context=context,
            metrics=self.metrics.registry,
            sources=[declared.value for declared in declared_subscribers],
            on_hook_error=self._count_hook_error,
        )
        self.usage.start()  # before the others: the bus ends subscribers in reverse order
        attach_subscribers(self.bus, [(one.plugin, one.value) for one in declared_subscribers], self._count_hook_error)

    def _wake_monitor(self) -> None:
        self.health.wake()  # built after the tiers, before their first call

    def _tell_plugins(self, report: HealthReport) -> None:
        self.oversight.history.observe(report)
        self._fronts.wake()
        self.registry.health_changed(report, on_hook_error=self._count_hook_error)

    def _count_hook_error(self, plugin: str) -> None:
        self.metrics.hook_errors.labels(plugin).inc()


def _check_room(values: CoreConfig, frame_bytes: int) -> None:
    if int(values.max_local_cpu_size * _GIB) // ALIGNMENT_BYTES * ALIGNMENT_BYTES < frame_bytes:
        raise ConfigError(
            f"max_local_cpu_size: {values.max_local_cpu_size} GiB is less than one chunk of {frame_bytes} bytes; "
            "raise it or lower chunk_size"
        )
