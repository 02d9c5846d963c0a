"""Builds the stores that a configuration names; `app` and ``lmcachectl doctor`` use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lmcache_core.config.model import CoreConfig, ExtraConfig
from lmcache_core.contracts.storage import BackendContext, StorageBackend
from lmcache_core.contracts.url import StoreURL
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.events.journal import Journal
from lmcache_core.loading import Loaded
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.registry.make import make
from lmcache_core.storage.breaker import BreakerTerms
from lmcache_core.storage.guard import GuardedTier
from lmcache_core.storage.tenants import TenantQuota, Tenants
from lmcache_core.storage.tier_setup import TierSetup
from lmcache_core.storage.unbuilt import UnbuiltStore

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class _TierPlan:
    name: str
    url: StoreURL
    extra_config: ExtraConfig
    capacity_bytes: int = 0


def build_tiers(
    loaded: Loaded,
    *,
    metrics: CacheMetrics,
    journal: Journal,
    on_failure: Callable[[], None],
    on_unbuilt: Callable[[PluginError], None],
    rank: int | None = None,
) -> list[GuardedTier]:
    """Build every store that the configuration names, each behind its guard; connects to none.

    One whose `build` raises or hangs is a tier of which every call fails with the reason.

    Args:
        loaded: Plugins and configuration.
        metrics: Families to count in.
        journal: Where events go.
        on_failure: Told after each failure of live traffic.
        on_unbuilt: Told why a store could not be built; raises to have none built.
        rank: Of several that share the configuration; each then has a disk folder of its own.

    Raises:
        ConfigError: An address that its store refuses.
        PluginUnavailableError: What a store needs is not installed; says how to install it.
    """
    values = loaded.configuration.values
    tiers: list[GuardedTier] = []
    for index, plan in enumerate(_plan_tiers(values, rank)):
        lacking = loaded.registry.unusable(plan.url.scheme)
        if lacking is not None:
            raise lacking
        try:
            backend = _build(loaded, plan)
        except PluginError as error:
            on_unbuilt(error)
            backend = UnbuiltStore(str(error))
        timeout_s = plan.extra_config.call_timeout_secs or values.blocking_timeout_secs
        setup = TierSetup(
            name=plan.name,
            url=str(plan.url),
            kind=plan.url.scheme,
            options=plan.extra_config,
            connections=values.backend_connections,
            timeout_s=timeout_s,
            breaker=_breaker_terms(plan.extra_config, timeout_s),
            index=index,
        )
        tiers.append(GuardedTier(backend, setup, metrics, journal=journal, on_failure=on_failure))
    return tiers


def build_tenants(values: CoreConfig) -> Tenants:
    """Say which tenants have a label and a quota of their own."""
    quotas = [
        TenantQuota(label=one.name, salt_hash=one.known_hash, quota_bytes=int(one.quota_gib * _GIB))
        for one in values.tenants
    ]
    return Tenants(quotas, int(values.tenant_quota_gib * _GIB))


def _build(loaded: Loaded, plan: _TierPlan) -> StorageBackend:
    """Have a store built.

    Raises:
        ConfigError: It refuses the address.
        PluginError: It raised anything else, hangs, or is no store.
    """
    declared = loaded.registry.backends()[plan.url.scheme]
    spec = declared.value
    context = BackendContext(
        name=plan.name,
        capacity_bytes=plan.capacity_bytes,
        connections=loaded.configuration.values.backend_connections,
    )
    options = plan.extra_config.table(spec.options.table) if spec.options else None
    what = f"build of {plan.url}"
    built: object = make(
        declared,
        what,
        partial(spec.build, plan.url, options, context),
        limit_s=loaded.registry.limit_s,
        close=_close,
        passes=(ConfigError,),
    )
    if isinstance(built, StorageBackend):
        return built
    reason = f"{what} gave an object of type {type(built).__name__!r}, which is no StorageBackend"
    raise PluginError(plugin=declared.plugin, origin=declared.origin, reason=reason)


def _close(built: object) -> None:
    if isinstance(built, StorageBackend):
        built.close()


def _breaker_terms(extra: ExtraConfig, timeout_s: float) -> BreakerTerms:
    return BreakerTerms(
        failures=extra.breaker_failures,
        slow_call_s=extra.slow_call_secs or timeout_s / 2,
        window_s=extra.breaker_window_secs,
        open_s=min(extra.breaker_open_secs, extra.breaker_max_open_secs),
        max_open_s=extra.breaker_max_open_secs,
        trials=extra.breaker_trials,
        ramp_s=extra.breaker_ramp_secs,
        trial_s=2 * timeout_s,
    )


def _plan_tiers(values: CoreConfig, rank: int | None) -> list[_TierPlan]:
    plans: list[_TierPlan] = []
    fsync = (("fsync", "true"),) if values.local_disk_fsync else ()
    if values.local_disk_path is not None:
        folder = values.local_disk_path.absolute()
        if rank is not None:
            folder /= f"rank-{rank}"
        plans.append(
            _TierPlan(
                name="LocalDiskBackend",
                url=StoreURL(scheme="disk", path=str(folder), query=fsync),
                extra_config=values.extra_config,
                capacity_bytes=int(values.max_local_disk_size * _GIB),
            )
        )
    for remote in values.all_remotes():
        name = f"RemoteBackend-{remote.name}" if remote.name else "RemoteBackend"
        plans.append(_TierPlan(name=name, url=remote.url.parsed, extra_config=remote.extra_config))
    return plans
