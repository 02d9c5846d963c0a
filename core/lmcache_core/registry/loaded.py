"""One plugin whose declarations are in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lmcache_core.contracts.storage import StorageBackendSpec
from lmcache_core.errors import PluginUnavailableError
from lmcache_core.registry.declare import Declarations
from lmcache_core.registry.discover import Found
from lmcache_core.registry.hooks import PluginHooks
from lmcache_core.registry.missing import install_line, is_installed
from lmcache_core.registry.record import Declared, PluginRecord, PluginState

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """One plugin whose declarations are in force."""

    found: Found
    hooks: PluginHooks
    declared: Declarations

    def credit(self, values: Iterable[T]) -> list[Declared[T]]:
        """Put this plugin's name to what it declared."""
        found = self.found
        return [Declared(found.name, found.origin, value, builtin=found.builtin) for value in values]

    def lacking(self, spec: StorageBackendSpec) -> PluginUnavailableError | None:
        """Say what must be installed before a store can be used; None when nothing must."""
        missing = next((module for module in spec.requires if not is_installed(module)), None)
        if missing is None:
            return None
        found = self.found
        if spec.extra:
            line = f"pip install '{spec.extra}'"
        else:
            line = install_line(found.entry_point.dist, name=found.distribution, module=missing)
        return PluginUnavailableError(plugin=found.name, origin=found.origin, missing=missing, install=line)

    def useless(self) -> PluginUnavailableError | None:
        """Say what must be installed when the plugin brings stores only and none can be used."""
        errors = [self.lacking(spec) for spec in self.declared.backends]
        return errors[0] if self.declared.only_backends and all(errors) else None

    def record(self, load_ms: float) -> PluginRecord:
        """Describe the plugin; one that brings only stores, none of them usable, is unavailable."""
        declared, found = self.declared, self.found
        lacking = {
            scheme: error.reason
            for spec in declared.backends
            if (error := self.lacking(spec)) is not None
            for scheme in spec.schemes
        }
        useless = self.useless()
        return PluginRecord(
            name=found.name,
            distribution=found.distribution,
            version=found.version,
            builtin=found.builtin,
            target=found.entry_point.value,
            state=PluginState.UNAVAILABLE if useless is not None else PluginState.LOADED,
            reason=_summary(lacking) if useless is None else useless.reason,
            load_ms=load_ms,
            hooks=self.hooks.names,
            tables={model.table: tuple(model.model_fields) for model in declared.tables},
            schemes=tuple(sorted(scheme for spec in declared.backends for scheme in spec.schemes)),
            policies=tuple(sorted(policy.name for policy in declared.policies)),
            checks=tuple(sorted(check.__name__ for check in declared.checks)),
            messages=tuple(sorted(message.__name__ for message in declared.messages)),
            sinks=tuple(sorted(sink.name for sink in declared.sinks)),
            commands=tuple(sorted(command.name for command in declared.commands)),
            lacking=lacking,
        )


def _summary(lacking: Mapping[str, str]) -> str:
    return "; ".join(f"{scheme}:// {reason}" for scheme, reason in lacking.items())
