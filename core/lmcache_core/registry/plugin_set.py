"""Which plugins are in force in a process, to be compared with another process's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from lmcache_core.registry.record import PluginRecord

Entry: TypeAlias = tuple[str, str, str]
"""Name of a plugin, its distribution, and the version of that."""


@dataclass(frozen=True)
class PluginSet:
    """Names and versions of the plugins in force. Those that were disabled or did not load are not in it.

    Attributes:
        entries: Sorted; empty where a process did not say, as there are always built-in plugins.
    """

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, records: Iterable[PluginRecord]) -> PluginSet:
        """Take those in force."""
        return cls(tuple(sorted((one.name, one.distribution, one.version) for one in records if one.registered)))

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits, the same for the same plugins; ``""`` for an empty set."""
        if not self.entries:
            return ""
        text = "\n".join("\t".join(entry) for entry in self.entries)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def difference(self, other: PluginSet, *, here: str = "here", there: str = "there") -> str:
        """Say what differs, one clause for each distribution; ``""`` where nothing does, or one did not say.

        Args:
            other: The other process's.
            here: What to call this process.
            there: What to call the other.
        """
        if not self.entries or not other.entries or self.entries == other.entries:
            return ""
        own, their = self._by_distribution(), other._by_distribution()
        clauses = []
        for distribution in sorted(own.keys() | their.keys()):
            mine, theirs = own.get(distribution, {}), their.get(distribution, {})
            versions = ", ".join(sorted(set(mine.values()))), ", ".join(sorted(set(theirs.values())))
            if mine and theirs and versions[0] != versions[1]:
                clauses.append(f"{distribution} is {versions[0]} {here} and {versions[1]} {there}")
            clauses += _only(mine.keys() - theirs.keys(), distribution, here)
            clauses += _only(theirs.keys() - mine.keys(), distribution, there)
        return "; ".join(clauses)

    def _by_distribution(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, distribution, version in self.entries:
            found.setdefault(distribution, {})[name] = version
        return found


def _only(names: Iterable[str], distribution: str, where: str) -> list[str]:
    listed = ", ".join(repr(name) for name in sorted(names))
    return [f"{listed} of {distribution} only {where}"] if listed else []
