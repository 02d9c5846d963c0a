"""What is known of one plugin, loaded or not."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lmcache_core.errors import PluginError

T_co = TypeVar("T_co", covariant=True)


class PluginState(str, enum.Enum):
    """What became of one discovered plugin."""

    LOADED = "loaded"
    FAILED = "failed"
    """It raised, or declared something wrong; nothing of it is registered."""
    UNAVAILABLE = "unavailable"
    """An optional dependency is not installed; `PluginRecord.reason` has the line that mends it."""
    DISABLED = "disabled"
    """Blocked by name, or all third parties are; it was not imported."""
    INCOMPATIBLE = "incompatible"
    """It needs another version of the hook API; nothing of it is registered."""


@dataclass(frozen=True, slots=True)
class Declared(Generic[T_co]):
    """One declared thing and who declared it.

    Attributes:
        plugin: Entry-point name.
        origin: Distribution and version, such as ``acme-checks 2.0``.
        value: The thing.
        builtin: Whether the plugin came with this project.
    """

    plugin: str
    origin: str
    value: T_co
    builtin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """What is known of one plugin.

    Attributes:
        name: Entry-point name.
        distribution: Name of the distribution it came with.
        version: Of the distribution; ``""`` where its metadata has none.
        builtin: Whether it came with this project.
        target: The entry point's value, such as ``acme_checks.hooks``.
        state: What became of it.
        reason: Why it is not loaded, or what part of it cannot be used; ``""`` when all is well.
        traceback: Of what it raised; ``""`` for none.
        load_ms: Milliseconds that importing it and calling its hooks took.
        hooks: Names of the hooks it implements, sorted.
        tables: Name of each table it owns, and the table's keys.
        schemes: URL schemes of its stores.
        policies: Names of its fallback policies.
        checks: Class names of its health checks.
        messages: Class names of its usage messages.
        sinks: Names of its usage sinks.
        commands: Names of its sub-commands.
        lacking: URL scheme to what must be installed before its store can be used.
    """

    name: str
    distribution: str
    version: str
    builtin: bool
    target: str
    state: PluginState
    reason: str = ""
    traceback: str = ""
    load_ms: float = 0.0
    hooks: tuple[str, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    schemes: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Distribution and version, as error texts show them."""
        return f"{self.distribution} {self.version}".rstrip()

    @property
    def registered(self) -> bool:
        """Whether what it declared is in force."""
        return bool(self.hooks)

    def error(self) -> PluginError:
        """Why it is not loaded, as an error that can be raised."""
        return PluginError(plugin=self.name, origin=self.origin, reason=self.reason)
