"""A KV cache for LLM inference whose health checks, fallback policies, stores and metrics are plugins.

The public names are imported on first use, so that ``import lmcache_core`` costs next to nothing and
never imports torch. No module of the core imports from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lmcache_core.version import __version__ as __version__

if TYPE_CHECKING:
    from lmcache_core.app.connect import connect as connect
    from lmcache_core.app.in_process import CacheManager as CacheManager
    from lmcache_core.app.listen import listen as listen
    from lmcache_core.app.server import CacheServer as CacheServer
    from lmcache_core.client.cache_client import CacheClient as CacheClient
    from lmcache_core.contracts.cache import Cleared as Cleared
    from lmcache_core.contracts.cache import KVAdapter as KVAdapter
    from lmcache_core.contracts.cache import KVCache as KVCache
    from lmcache_core.contracts.cache import PendingLookup as PendingLookup
    from lmcache_core.contracts.command import CommandSpec as CommandSpec
    from lmcache_core.contracts.command import UsageSinkSpec as UsageSinkSpec
    from lmcache_core.contracts.control import CacheView as CacheView
    from lmcache_core.contracts.control import LocalUsage as LocalUsage
    from lmcache_core.contracts.control import StorageControl as StorageControl
    from lmcache_core.contracts.control import ThreadReport as ThreadReport
    from lmcache_core.contracts.control import Tier as Tier
    from lmcache_core.contracts.control import WriteBehindUsage as WriteBehindUsage
    from lmcache_core.contracts.event import Event as Event
    from lmcache_core.contracts.event import EventSubscriber as EventSubscriber
    from lmcache_core.contracts.event import EventType as EventType
    from lmcache_core.contracts.fallback import FallbackPolicy as FallbackPolicy
    from lmcache_core.contracts.health import CheckResult as CheckResult
    from lmcache_core.contracts.health import HealthCheck as HealthCheck
    from lmcache_core.contracts.health import HealthState as HealthState
    from lmcache_core.contracts.key import ChunkKey as ChunkKey
    from lmcache_core.contracts.key import KeyNamespace as KeyNamespace
    from lmcache_core.contracts.layout import KVGroup as KVGroup
    from lmcache_core.contracts.layout import KVLayout as KVLayout
    from lmcache_core.contracts.message import ContinuousContextMessage as ContinuousContextMessage
    from lmcache_core.contracts.message import UsageMessage as UsageMessage
    from lmcache_core.contracts.metric import MetricSpec as MetricSpec
    from lmcache_core.contracts.metric import TelemetryContext as TelemetryContext
    from lmcache_core.contracts.push import PushedReport as PushedReport
    from lmcache_core.contracts.push import PushHealthCheck as PushHealthCheck
    from lmcache_core.contracts.report import BackendReport as BackendReport
    from lmcache_core.contracts.report import CheckReport as CheckReport
    from lmcache_core.contracts.report import HealthReport as HealthReport
    from lmcache_core.contracts.settings import PluginSettings as PluginSettings
    from lmcache_core.contracts.storage import BackendContext as BackendContext
    from lmcache_core.contracts.storage import BackendUsage as BackendUsage
    from lmcache_core.contracts.storage import Frame as Frame
    from lmcache_core.contracts.storage import LoadResult as LoadResult
    from lmcache_core.contracts.storage import StorageBackend as StorageBackend
    from lmcache_core.contracts.storage import StorageBackendSpec as StorageBackendSpec
    from lmcache_core.contracts.url import StoreURL as StoreURL
    from lmcache_core.errors import BackendError as BackendError
    from lmcache_core.errors import BackendFullError as BackendFullError
    from lmcache_core.errors import BackendTimeoutError as BackendTimeoutError
    from lmcache_core.errors import ConfigError as ConfigError
    from lmcache_core.errors import IrrecoverableException as IrrecoverableException
    from lmcache_core.errors import LayoutError as LayoutError
    from lmcache_core.errors import LMCacheError as LMCacheError
    from lmcache_core.errors import OverrideError as OverrideError
    from lmcache_core.errors import PluginError as PluginError
    from lmcache_core.errors import PluginUnavailableError as PluginUnavailableError
    from lmcache_core.health.hosted import HostedCheck as HostedCheck
    from lmcache_core.health.hosted import HostedVerdict as HostedVerdict
    from lmcache_core.hookspecs import hookimpl as hookimpl
    from lmcache_core.hosting import open_checks as open_checks
    from lmcache_core.hosting import open_tiers as open_tiers
    from lmcache_core.loading import Loaded as Loaded
    from lmcache_core.loading import load as load
    from lmcache_core.loading import read_mode as read_mode
    from lmcache_core.registry.plugin_set import PluginSet as PluginSet
    from lmcache_core.storage.guard import GuardedTier as GuardedTier
    from lmcache_core.telemetry.histogram import Histogram as Histogram
    from lmcache_core.telemetry.messages import CacheLifespanMessage as CacheLifespanMessage
    from lmcache_core.telemetry.messages import EngineMessage as EngineMessage
    from lmcache_core.telemetry.messages import EnvMessage as EnvMessage
    from lmcache_core.telemetry.messages import L1UsageMessage as L1UsageMessage
    from lmcache_core.telemetry.messages import L2ConnectorUsageMessage as L2ConnectorUsageMessage
    from lmcache_core.telemetry.messages import L2UsageMessage as L2UsageMessage
    from lmcache_core.telemetry.messages import MetadataMessage as MetadataMessage
    from lmcache_core.telemetry.messages import ModelUsageMessage as ModelUsageMessage
    from lmcache_core.telemetry.messages import MPInstanceMessage as MPInstanceMessage
    from lmcache_core.telemetry.messages import MPServerMessage as MPServerMessage
    from lmcache_core.telemetry.messages import ReusePatternMessage as ReusePatternMessage
    from lmcache_core.telemetry.reuse import ChunkReuseTracker as ChunkReuseTracker
    from lmcache_core.telemetry.reuse_reports import ReuseReports as ReuseReports
    from lmcache_core.telemetry.reuse_snapshot import ReuseSnapshot as ReuseSnapshot
    from lmcache_core.telemetry.reuse_totals import ReuseTotals as ReuseTotals
    from lmcache_core.workers import WorkerPool as WorkerPool

_HOME = {
    "listen": "app.listen",
    "connect": "app.connect",
    "CacheClient": "client.cache_client",
    "CacheServer": "app.server",
    "PendingLookup": "contracts.cache",
    "KVCache": "contracts.cache",
    "KVAdapter": "contracts.cache",
    "Cleared": "contracts.cache",
    "BackendContext": "contracts.storage",
    "BackendError": "errors",
    "BackendFullError": "errors",
    "BackendTimeoutError": "errors",
    "BackendReport": "contracts.report",
    "BackendUsage": "contracts.storage",
    "CacheLifespanMessage": "telemetry.messages",
    "CacheManager": "app.in_process",
    "CacheView": "contracts.control",
    "CheckReport": "contracts.report",
    "CheckResult": "contracts.health",
    "ChunkKey": "contracts.key",
    "ChunkReuseTracker": "telemetry.reuse",
    "CommandSpec": "contracts.command",
    "ConfigError": "errors",
    "ContinuousContextMessage": "contracts.message",
    "EngineMessage": "telemetry.messages",
    "EnvMessage": "telemetry.messages",
    "Event": "contracts.event",
    "EventSubscriber": "contracts.event",
    "EventType": "contracts.event",
    "FallbackPolicy": "contracts.fallback",
    "Frame": "contracts.storage",
    "HealthCheck": "contracts.health",
    "HealthReport": "contracts.report",
    "HealthState": "contracts.health",
    "Histogram": "telemetry.histogram",
    "IrrecoverableException": "errors",
    "KVGroup": "contracts.layout",
    "KVLayout": "contracts.layout",
    "KeyNamespace": "contracts.key",
    "L1UsageMessage": "telemetry.messages",
    "L2ConnectorUsageMessage": "telemetry.messages",
    "L2UsageMessage": "telemetry.messages",
    "LMCacheError": "errors",
    "LayoutError": "errors",
    "LoadResult": "contracts.storage",
    "MPInstanceMessage": "telemetry.messages",
    "MPServerMessage": "telemetry.messages",
    "LocalUsage": "contracts.control",
    "MetadataMessage": "telemetry.messages",
    "MetricSpec": "contracts.metric",
    "ModelUsageMessage": "telemetry.messages",
    "OverrideError": "errors",
    "PluginError": "errors",
    "PluginSet": "registry.plugin_set",
    "PluginSettings": "contracts.settings",
    "PluginUnavailableError": "errors",
    "ReusePatternMessage": "telemetry.messages",
    "ReuseReports": "telemetry.reuse_reports",
    "ReuseSnapshot": "telemetry.reuse_snapshot",
    "ReuseTotals": "telemetry.reuse_totals",
    "PushHealthCheck": "contracts.push",
    "PushedReport": "contracts.push",
    "StorageBackend": "contracts.storage",
    "StorageBackendSpec": "contracts.storage",
    "StorageControl": "contracts.control",
    "StoreURL": "contracts.url",
    "TelemetryContext": "contracts.metric",
    "ThreadReport": "contracts.control",
    "Tier": "contracts.control",
    "UsageMessage": "contracts.message",
    "UsageSinkSpec": "contracts.command",
    "WriteBehindUsage": "contracts.control",
    "hookimpl": "hookspecs",
    "HostedCheck": "health.hosted",
    "GuardedTier": "storage.guard",
    "Loaded": "loading",
    "load": "loading",
    "read_mode": "loading",
    "open_checks": "hosting",
    "open_tiers": "hosting",
    "WorkerPool": "workers",
    "HostedVerdict": "health.hosted",
}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605 - made from the one list above


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'lmcache_core' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"lmcache_core.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names without importing them."""
    return list(__all__)
