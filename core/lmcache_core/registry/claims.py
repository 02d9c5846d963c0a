"""Names that only one plugin can have: the first to claim one keeps it."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core.registry.declare import Declarations
from lmcache_core.registry.discover import Found

CORE_COMMANDS = frozenset(
    {"config", "doctor", "fault", "health", "plugins", "reuse", "serve", "status", "top", "usage"}
)
"""Built-in sub-commands of ``lmcachectl``."""


class Claims:
    """Who owns which plugin name, table, policy, scheme, message, sink and command."""

    def __init__(self) -> None:
        self._plugins: dict[str, Found] = {}
        self._owners: dict[tuple[str, str], Found] = {}

    def take_plugin(self, found: Found) -> str | None:
        """Claim the plugin's own name; say who has it already, None for nobody."""
        owner = self._plugins.setdefault(found.name, found)
        if owner is found:
            return None
        if owner.builtin:
            return f"the name belongs to the built-in plugin of {owner.origin}; uninstall this one or have it renamed"
        return f"the name is already taken by {owner.origin}; uninstall one of the two"

    def take_names(self, found: Found, declared: Declarations) -> str | None:
        """Claim all names that a plugin declares, or none: then say which is taken, and by whom."""
        for kind, name in _names(declared):
            if kind == "command" and name in CORE_COMMANDS:
                return f"command {name!r} is built in and cannot be taken; rename it"
            owner = self._owners.get((kind, name))
            if owner is not None:
                return (
                    f"{kind} {name!r} is already declared by plugin {owner.name!r} ({owner.origin}); "
                    "disable or uninstall one of the two"
                )
        self._owners.update((key, found) for key in _names(declared))
        return None


def _names(declared: Declarations) -> Iterator[tuple[str, str]]:
    yield from (("table", model.table) for model in declared.tables)
    yield from (("fallback policy", policy.name) for policy in declared.policies)
    yield from (("URL scheme", scheme) for spec in declared.backends for scheme in spec.schemes)
    yield from (("usage message", message.__name__) for message in declared.messages)
    yield from (("usage sink", sink.name) for sink in declared.sinks)
    yield from (("command", command.name) for command in declared.commands)
