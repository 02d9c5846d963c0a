"""What one plugin declares, asked once and checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import cast

from lmcache_core.contracts.command import CommandSpec, UsageSinkSpec
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.contracts.storage import StorageBackendSpec
from lmcache_core.registry import conform
from lmcache_core.registry.discover import Found
from lmcache_core.registry.hooks import PluginHooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All that one plugin declares before telemetry starts; every item has been checked."""

    tables: tuple[type[PluginSettings], ...]
    checks: tuple[type[HealthCheck], ...]
    policies: tuple[type[FallbackPolicy], ...]
    backends: tuple[StorageBackendSpec, ...]
    messages: tuple[type[UsageMessage], ...]
    sinks: tuple[UsageSinkSpec, ...]
    commands: tuple[CommandSpec, ...]

    @property
    def only_backends(self) -> bool:
        """Whether it brings stores, with or without their tables, and nothing else."""
        others = (self.checks, self.policies, self.messages, self.sinks, self.commands)
        return bool(self.backends) and not any(others)


def declare(found: Found, hooks: PluginHooks) -> Declarations:
    """Call every declaring hook that needs no context.

    Raises:
        PluginError: A hook raised, or declared something that does not keep its contract.
    """
    items = {hook: _checked(found, hooks, hook, objection) for hook, objection in _OBJECTIONS.items()}
    declared = Declarations(
        tables=cast("tuple[type[PluginSettings], ...]", items["lmcache_settings"]),
        checks=cast("tuple[type[HealthCheck], ...]", items["lmcache_health_checks"]),
        policies=cast("tuple[type[FallbackPolicy], ...]", items["lmcache_fallback_policies"]),
        backends=cast("tuple[StorageBackendSpec, ...]", items["lmcache_storage_backends"]),
        messages=cast("tuple[type[UsageMessage], ...]", items["lmcache_usage_messages"]),
        sinks=cast("tuple[UsageSinkSpec, ...]", items["lmcache_usage_sinks"]),
        commands=cast("tuple[CommandSpec, ...]", items["lmcache_commands"]),
    )
    _refuse_repeats(found, declared)
    _refuse_undeclared_options(found, declared)
    return declared


def _checked(
    found: Found, hooks: PluginHooks, hook: str, objection_to: Callable[[object], str | None]
) -> tuple[object, ...]:
    items = tuple(hooks.collect(hook))
    for item in items:
        objection = objection_to(item)
        if objection is not None:
            raise found.error(f"hook {hook} {objection}")
    return items


def _object_to_backend(value: object) -> str | None:
    if not isinstance(value, StorageBackendSpec):
        return conform.object_to_instance(value, StorageBackendSpec)
    return conform.object_to_function(value.build, f"a store for {value.schemes[0]}:// with a build")


def _object_to_sink(value: object) -> str | None:
    if not isinstance(value, UsageSinkSpec):
        return conform.object_to_instance(value, UsageSinkSpec)
    return conform.object_to_function(value.build, f"usage sink {value.name!r} with a build")


def _object_to_command(value: object) -> str | None:
    return conform.object_to_instance(value, CommandSpec)


_OBJECTIONS: dict[str, Callable[[object], str | None]] = {
    "lmcache_settings": conform.object_to_table,
    "lmcache_health_checks": conform.object_to_check,
    "lmcache_fallback_policies": conform.object_to_policy,
    "lmcache_storage_backends": _object_to_backend,
    "lmcache_usage_messages": conform.object_to_message,
    "lmcache_usage_sinks": _object_to_sink,
    "lmcache_commands": _object_to_command,
}


def _refuse_repeats(found: Found, declared: Declarations) -> None:
    named: tuple[tuple[str, Iterable[str]], ...] = (
        ("table", (table.table for table in declared.tables)),
        ("health check", (check.__name__ for check in declared.checks)),
        ("fallback policy", (policy.name for policy in declared.policies)),
        ("URL scheme", (scheme for spec in declared.backends for scheme in spec.schemes)),
        ("usage message", (message.__name__ for message in declared.messages)),
        ("usage sink", (sink.name for sink in declared.sinks)),
        ("command", (command.name for command in declared.commands)),
    )
    for kind, names in named:
        repeated = _first_repeat(list(names))
        if repeated is not None:
            raise found.error(f"{kind} {repeated!r} is declared twice; declare it once")


def _first_repeat(names: Collection[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _refuse_undeclared_options(found: Found, declared: Declarations) -> None:
    """An options model that is no declared table could never be filled from a configuration."""
    models = [spec.options for spec in declared.backends] + [sink.options for sink in declared.sinks]
    for model in models:
        if model is not None and model not in declared.tables:
            raise found.error(f"options {conform.show(model)} are in no table; declare them in lmcache_settings too")
