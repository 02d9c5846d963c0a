"""Whether each configured store works, and what each health check says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait

from lmcache_core.cli.finding import Finding, fail, ok, warn
from lmcache_core.config.model import ExtraConfig
from lmcache_core.contracts.control import LocalUsage, ThreadReport, WriteBehindUsage
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import BackendError, ConfigError, LMCacheError, PluginError
from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.health.blame import Blame, texts_in_tables
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.create import create_checks
from lmcache_core.health.fallback import Fallbacks
from lmcache_core.health.roster import enlist, misses
from lmcache_core.health.run import Outcome, run_check
from lmcache_core.health.unmade import UnmadePolicy
from lmcache_core.health.watch import CheckWatch
from lmcache_core.loading import Loaded
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.registry.collect import PluginRegistry
from lmcache_core.registry.make import make
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.local_cpu import LocalCPUBackend
from lmcache_core.storage.manager import StorageManager
from lmcache_core.tiers import build_tiers
from lmcache_core.workers import WorkerPool


class Trial:
    """The tiers of a configuration without an engine; the `CacheView` that checks are made from.

    A store that could not be built says so when it is asked.

    Raises:
        LMCacheError: What the configuration names cannot be.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._values = loaded.configuration.values
        metrics = self.metrics = CacheMetrics()
        journal = Journal(EventBus(metrics))
        self.tiers: Sequence[GuardedTier] = build_tiers(
            loaded, metrics=metrics, journal=journal, on_failure=lambda: None, on_unbuilt=lambda _error: None
        )
        self.storage = StorageManager(
            local=LocalCPUBackend(Arena(ALIGNMENT_BYTES), use_hot=False, metrics=metrics, journal=journal),
            tiers=self.tiers,
            metrics=metrics,
            journal=journal,
            write_behind_chunks=1,
            lease_ttl_s=1.0,
        )

    @property
    def health_options(self) -> ExtraConfig:
        """The global health keys."""
        return self._values.extra_config

    @property
    def labels(self) -> Mapping[str, str]:
        """None of a real instance."""
        return {"model_name": "", "worker_id": "0", "role": "doctor"}

    def local_usage(self) -> LocalUsage:
        """Tell how tier 0 fares."""
        return self.storage.local_usage()

    def write_behind(self) -> Sequence[WriteBehindUsage]:
        """Tell how the queue in front of each store fares."""
        return self.storage.write_behind()

    def threads(self) -> Sequence[ThreadReport]:
        """None runs here."""
        return ()

    def settings(self, table: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""
        return self._values.extra_config.table(table)


def examine_stores(loaded: Loaded) -> Iterator[Finding]:
    """Ping every store and run every health check once, each under its own timeout."""
    try:
        trial = Trial(loaded)
    except ConfigError as error:
        yield from (fail("stores", problem) for problem in error.problems)
        return
    except LMCacheError as error:
        yield fail("stores", str(error))
        return
    try:
        if not trial.tiers:
            yield ok("stores", "none but CPU memory is configured")
        for tier in trial.tiers:
            yield _ping(tier)
        yield from _run_checks(loaded, trial)
    finally:
        trial.storage.close(0.0)


def _ping(tier: GuardedTier) -> Finding:
    subject = f"store {tier.name}"
    try:
        took_ms = tier.ping(timeout_s=tier.options.ping_timeout)
    except BackendError as error:
        return fail(subject, str(error))
    return ok(subject, f"{tier.url} answers in {took_ms:.1f} ms")


def _run_checks(loaded: Loaded, trial: Trial) -> Iterator[Finding]:
    checks: list[Candidate] = []
    options = trial.health_options
    for declared in loaded.registry.health_checks():
        try:
            checks += create_checks(
                declared, trial, options=options, tables=options.checks, limit_s=loaded.registry.limit_s
            )
        except PluginError as error:  # noqa: PERF203 - each plugin fails alone
            yield fail(f"plugin {declared.plugin}", error.reason)
    if not checks:
        yield warn("checks", "no health check applies, so no outage would be noticed before a request meets it")
        return
    faults: list[Finding] = []
    watches = _enlist(loaded, trial, checks, faults)
    yield from faults
    pool = WorkerPool("doctor", max(1, len(watches)))
    for watch in watches:
        yield _run(pool, watch)
    pool.close()


def _enlist(loaded: Loaded, trial: Trial, checks: Sequence[Candidate], faults: list[Finding]) -> list[CheckWatch]:
    """Take checks as the start of a cache does, and note what it would find wrong with them."""

    def note(error: PluginError, effect: str) -> None:
        faults.append(fail(f"plugin {error.plugin}", f"{error.reason}; {effect}"))

    registry, tables = loaded.registry, trial.health_options.checks
    blame = Blame(texts_in_tables(registry.tables(), trial.settings), note)
    fallbacks = Fallbacks(_policies(registry, note), trial.storage, trial.metrics, limit_s=registry.limit_s)
    try:
        watches = enlist(checks, 0.0, blame)
        fallbacks.validate(watches, blame)
    except ConfigError as error:
        faults += [fail("checks", problem) for problem in error.problems]
        return []
    find = warn if faults or registry.failed() else fail  # the check may be one that is missing
    faults += [find("checks", problem) for problem in misses(tables, watches)]
    return watches


def _policies(registry: PluginRegistry, note: Callable[[PluginError, str], None]) -> dict[str, FallbackPolicy]:
    policies: dict[str, FallbackPolicy] = {}
    for name, declared in registry.policies().items():
        try:
            policies[name] = make(
                declared, f"making fallback policy {name!r}", declared.value, limit_s=registry.limit_s
            )
        except PluginError as error:  # noqa: PERF203 - each plugin fails alone
            note(error, "a check that chose it has everything recomputed while it fails")
            policies[name] = UnmadePolicy(error)
    return policies


def _run(pool: WorkerPool, watch: CheckWatch) -> Finding:
    subject = f"check {watch.name}"
    future = pool.submit(lambda: run_check(watch.check, watch.reader))
    wait([future], timeout=watch.terms.timeout_s)
    if not future.done():
        return fail(subject, f"no answer within {watch.terms.timeout_s:g} s")
    return _as_finding(subject, future.result())


def _as_finding(subject: str, outcome: Outcome) -> Finding:
    result = outcome.result
    if outcome.skipped:
        return ok(subject, "asks to be left out")
    if not result.healthy:
        return fail(subject, result.reason)
    if result.degraded:
        return warn(subject, result.reason)
    evidence = ", ".join(f"{key} {value}" for key, value in result.details.items())
    return ok(subject, f"passes{f' ({evidence})' if evidence else ''}")
