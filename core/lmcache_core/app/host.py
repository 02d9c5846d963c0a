"""Tiers, health, telemetry and pages of one process, whoever uses them: an engine of its own or a server's clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lmcache_core.config.model import CoreConfig, ExtraConfig
from lmcache_core.contracts.control import LocalUsage, ThreadReport, WriteBehindUsage
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.metric import TelemetryContext
from lmcache_core.contracts.report import HealthReport
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.events.attach import attach_subscribers
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.health.blame import Blame, texts_in_tables
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.create import create_checks
from lmcache_core.health.monitor import HealthMonitor
from lmcache_core.health.unmade import UnmadePolicy
from lmcache_core.loading import Loaded
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena
from lmcache_core.metering import build_telemetry
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.metrics.health import HealthCollector
from lmcache_core.metrics.threads import PeriodicThreadCollector
from lmcache_core.ops.fronts import Fronts, build_fronts
from lmcache_core.ops.oversight import Oversight
from lmcache_core.registry.make import make
from lmcache_core.storage.arena_pages import ArenaPages
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.manager import StorageManager
from lmcache_core.storage.sweeper import LeaseSweeper
from lmcache_core.telemetry.start import Telemetry
from lmcache_core.threads import PeriodicThreadRegistry
from lmcache_core.tiers import build_tenants, build_tiers
from lmcache_core.version import __version__
from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

_GIB = 1 << 30

_FIRST_ROUND_SLACK_S = 1.0

_LAST_TOLD_S = 5.0
"""Longest that the end waits for plugins that are being told of the last change of health."""

_PREFETCHES_AT_ONCE = 16
"""Each waits for a store most of its time; the guard's own pools bound what a store sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRole:
    """What a process is, as far as its tiers, pages and telemetry depend on it.

    Attributes:
        labels: ``instance_id``, ``model_name``, ``worker_id``, ``role``.
        rank: Added to port numbers.
        own_rank: The rank where several share a configuration, so that each has files of its own.
        deployment_mode: ``single_process`` or ``mp_server``.
        describe: Makes the telemetry message that says how it is set up.
        shared: Whether other processes map the arena.
    """

    labels: Mapping[str, str]
    rank: int
    own_rank: int | None
    deployment_mode: str
    describe: Callable[[], UsageMessage]
    shared: bool = False


class CacheHost:
    """The parts of a cache around the engine's face; is the `CacheView` that health checks get.

    Attributes:
        storage: The tiers.
        health: The monitor.
        oversight: Overrides and history.
        metrics: Prometheus families.
        bus: Events.
        journal: What the data path publishes through.
        loaders: Threads that prefetch.
        usage: Usage telemetry, None before `start`.
        init_failed_reason: ``""``, or why the cache only recomputes.
        thread_sources: Tell how threads of others fare that the cache depends on.
    """

    def __init__(self, loaded: Loaded, role: HostRole) -> None:
        self._loaded = loaded
        self._role = role
        self.values = loaded.configuration.values
        self.registry = loaded.registry
        self.threads_registry = PeriodicThreadRegistry()
        self.metrics = CacheMetrics()
        self.metrics.instance_info.labels(**role.labels, version=__version__).set(1)
        self.metrics.registry.register(PeriodicThreadCollector(self.threads_registry))
        self.bus = EventBus(self.metrics)
        self.journal = Journal(self.bus)
        self.loaders = WorkerPool("lmcache-prefetch", _PREFETCHES_AT_ONCE)
        self.init_failed_reason = ""
        self.thread_sources: list[Callable[[], Sequence[ThreadReport]]] = []
        self.usage: Telemetry | None = None
        self._plugins_failed = dict(loaded.registry.failed())
        for name in self._plugins_failed:
            self.metrics.plugin_load_failed.labels(name).set(1)
        self._listeners = loaded.registry.health_listeners(self._count_hook_error)
        self.storage = self._build_storage()
        self.oversight = Oversight(
            self.values,
            storage=self.storage,
            metrics=self.metrics,
            threads=self.threads_registry,
            rank=role.own_rank,
        )
        self.health = self._build_monitor()
        self.metrics.registry.register(HealthCollector(self.health))
        self._sweeper = LeaseSweeper(self.storage, self.values.pin_timeout_sec, self.threads_registry)
        self._pages = None if role.shared else ArenaPages(self.storage.local.arena, self.threads_registry)
        self.fronts = self._build_fronts()

    def start(self) -> None:
        """Start the threads and wait for the first round of checks, at most about one check's time.

        Raises:
            PluginError: A required plugin could not say what it subscribes to or measures; nothing runs.
        """
        try:
            self._subscribe()
        except PluginError:
            self.stop(0.0)
            raise
        if self._pages is not None:
            self._pages.start()
        self._sweeper.start()
        self.oversight.start(self._wake_monitor)
        self.health.start()
        self.fronts.start()
        options = self.values.extra_config
        if not self.health.wait_first_round(options.ping_timeout + _FIRST_ROUND_SLACK_S):
            log.warning("the first round of health checks is still running; the cache serves when it has passed")

    def stop(self, drain_s: float) -> None:
        """Write what waits to be written for at most so long, send the last telemetry, let go of everything."""
        self.health.stop()
        self._sweeper.stop()
        if self._pages is not None:
            self._pages.stop()
        self.oversight.stop()
        self.loaders.close()
        self.storage.close(drain_s)
        self.bus.stop()
        self.fronts.stop()
        self._listeners.settle(_LAST_TOLD_S)

    # -- contracts.control.CacheView, for health checks ----------------------

    @property
    def tiers(self) -> Sequence[GuardedTier]:
        """The stores behind tier 0, in order."""
        return self.storage.tiers

    @property
    def health_options(self) -> ExtraConfig:
        """The global health keys."""
        return self.values.extra_config

    @property
    def labels(self) -> Mapping[str, str]:
        """Of this instance: ``instance_id``, ``model_name``, ``worker_id``, ``role``."""
        return self._role.labels

    def local_usage(self) -> LocalUsage:
        """Tell how tier 0 fares."""
        return self.storage.local_usage()

    def write_behind(self) -> Sequence[WriteBehindUsage]:
        """Tell how the queue in front of each store fares."""
        return self.storage.write_behind()

    def threads(self) -> Sequence[ThreadReport]:
        """Tell how the background threads fare."""
        others = [report for tell in self.thread_sources for report in tell()]
        return [*self.threads_registry.reports(), *self.bus.threads(), *others]

    def settings(self, table: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""
        return self.values.extra_config.table(table)

    # -- building -------------------------------------------------------------

    def _build_storage(self) -> StorageManager:
        try:
            arena = Arena(int(self.values.max_local_cpu_size * _GIB), shared=self._role.shared)
            tiers = build_tiers(
                self._loaded,
                metrics=self.metrics,
                journal=self.journal,
                on_failure=self._wake_monitor,
                on_unbuilt=lambda error: self._go_without(error, "the store counts as down"),
                rank=self._role.own_rank,
            )
        except (ConfigError, PluginError):
            raise
        except Exception as error:  # the border of initialisation: the engine goes on without a cache
            log.exception("the cache could not be built; everything is recomputed")
            self.init_failed_reason = f"{type(error).__name__}: {error}"
            arena, tiers = Arena(ALIGNMENT_BYTES, shared=self._role.shared), []
        return StorageManager(
            local=LocalCPUBackend(
                arena,
                use_hot=self.values.local_cpu,
                metrics=self.metrics,
                journal=self.journal,
                tenants=build_tenants(self.values),
            ),
            tiers=tiers,
            metrics=self.metrics,
            journal=self.journal,
            write_behind_chunks=self.values.write_behind_chunks,
            lease_ttl_s=self.values.pin_timeout_sec,
        )

    def _build_monitor(self) -> HealthMonitor:
        return HealthMonitor(
            checks=self._build_checks(),
            policies=self._build_policies(),
            builtin_policies=frozenset(name for name, one in self.registry.policies().items() if one.builtin),
            storage=self.storage,
            options=self.values.extra_config,
            metrics=self.metrics,
            on_change=self._tell_plugins,
            registry=self.threads_registry,
            init_failed_reason=self.init_failed_reason,
            plugins_failed=self._plugins_failed,
            bypassed=self.storage.bypassed,
            backends=self.oversight.backends,
            tables=self.values.extra_config.checks,
            limit_s=self.registry.limit_s,
            blame=Blame(texts_in_tables(self.registry.tables(), self.settings), self._go_without),
        )

    def _build_checks(self) -> list[Candidate]:
        checks: list[Candidate] = []
        options = self.values.extra_config
        for declared in self.registry.health_checks():
            try:
                checks += create_checks(
                    declared, self, options=options, tables=options.checks, limit_s=self.registry.limit_s
                )
            except PluginError as error:  # noqa: PERF203 - each plugin fails alone
                self._go_without(error, "its checks do not run")
        return checks

    def _build_policies(self) -> dict[str, FallbackPolicy]:
        policies: dict[str, FallbackPolicy] = {}
        for name, declared in self.registry.policies().items():
            what = f"making fallback policy {name!r}"
            try:
                policies[name] = make(declared, what, declared.value, limit_s=self.registry.limit_s)
            except PluginError as error:
                self._go_without(error, "a check that chose it has everything recomputed while it fails")
                policies[name] = UnmadePolicy(error)
        return policies

    def _go_without(self, error: PluginError, effect: str) -> None:
        """Note what a plugin could not make; raises where the plugin is required."""
        if error.plugin in self.values.plugins.required:
            raise error
        log.error("%s; %s", error, effect, exc_info=error.__cause__)
        earlier = self._plugins_failed.get(error.plugin, error.reason)
        self._plugins_failed[error.plugin] = error.reason if earlier == error.reason else f"{earlier}; {error.reason}"
        self.metrics.plugin_load_failed.labels(error.plugin).set(1)

    def _miss(self, error: PluginError, effect: str) -> None:
        """Note what a plugin could not say when it was asked; raises where the plugin is required."""
        self._count_hook_error(error.plugin)
        self._go_without(error, effect)

    def _build_fronts(self) -> Fronts:
        return build_fronts(
            self.values,
            monitor=self.health,
            metrics=self.metrics,
            threads=self.threads_registry,
            oversight=self.oversight,
            backends=tuple(self.storage.backend_names()),
            rank=self._role.rank,
        )

    def _subscribe(self) -> None:
        context = TelemetryContext(
            chunk_tokens=self.values.chunk_size, deployment_mode=self._role.deployment_mode, settings=self.settings
        )
        unheard = partial(self._miss, effect="it sees no event")
        declared_subscribers = self.registry.event_subscribers(context, on_hook_error=unheard)
        unmeasured: list[PluginError] = []
        self.usage = build_telemetry(
            self._loaded,
            storage=self.storage,
            describe=self._role.describe,
            bus=self.bus,
            threads=self.threads_registry,
            context=context,
            metrics=self.metrics.registry,
            sources=[declared.value for declared in declared_subscribers],
            on_hook_error=unmeasured.append,
        )
        self.usage.start()  # before the others: the bus ends subscribers in reverse order
        for error in unmeasured:  # not raised in telemetry, which swallows errors
            self._miss(error, "usage telemetry goes without what it measures")
        attach_subscribers(self.bus, declared_subscribers, unheard, limit_s=self.registry.limit_s)

    def _wake_monitor(self) -> None:
        self.health.wake()  # built after the tiers, before their first call

    def _tell_plugins(self, report: HealthReport) -> None:
        self.oversight.history.observe(report)
        self.fronts.wake()
        self._listeners.tell(report=report)

    def _count_hook_error(self, plugin: str) -> None:
        self.metrics.hook_errors.labels(plugin).inc()


def check_room(values: CoreConfig, frame_bytes: int) -> None:
    """Refuse an arena that cannot hold one chunk.

    Raises:
        ConfigError: Says how large a chunk is.
    """
    if int(values.max_local_cpu_size * _GIB) // ALIGNMENT_BYTES * ALIGNMENT_BYTES < frame_bytes:
        raise ConfigError(
            f"max_local_cpu_size: {values.max_local_cpu_size} GiB is less than one chunk of {frame_bytes} bytes; "
            "raise it or lower chunk_size"
        )
