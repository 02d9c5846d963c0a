"""Whose fault it is that a check cannot be used as it is: its plugin's, which costs the check, or the user's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from pydantic import BaseModel

from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.registry.record import Declared

OnUnusable = Callable[[PluginError, str], None]
"""Told what is wrong with a plugin's check, and what comes of it. What it raises passes."""


def refuse(error: PluginError, effect: str) -> None:
    """Go without nothing: every plugin is required."""
    del effect
    raise error


class Blame:
    """Tells a plugin's fault, with which the cache starts, from a wrong line of the user's, with which it does not.

    A check takes its name, its policies and its backend from its own code, or from the plugin's own table: what
    stands in the table is the user's.

    Args:
        written: Plugin to the texts that the user wrote into its tables.
        on_unusable: Told once of each fault of a plugin.
    """

    def __init__(self, written: Mapping[str, Collection[str]] | None = None, on_unusable: OnUnusable = refuse) -> None:
        self._written = written or {}
        self._on_unusable = on_unusable
        self._told: set[str] = set()
        self._problems: list[str] = []

    def put(self, error: PluginError, effect: str, *, over: Iterable[str] = (), configured: bool = False) -> None:
        """Put a fault where it belongs.

        Args:
            error: What is wrong; names the plugin whose check it is.
            effect: What comes of it, where the plugin is to blame.
            over: The names that are wrong, or taken.
            configured: Whether ``[[extra_config.checks]]`` is what gave them.
        """
        if configured or not set(over).isdisjoint(self._written.get(error.plugin, ())):
            self._problems.append(str(error))
        elif str(error) not in self._told:
            self._told.add(str(error))
            self._on_unusable(error, effect)

    def settle(self) -> None:
        """Let the user know all that is his.

        Raises:
            ConfigError: One sentence for each fault.
        """
        if self._problems:
            raise ConfigError(*self._problems)


def texts_in_tables(
    declared: Iterable[Declared[type[PluginSettings]]], settings: Callable[[str], PluginSettings | None]
) -> dict[str, frozenset[str]]:
    """Give, for each plugin, every text that the user set in its tables.

    Args:
        declared: Models of tables, and whose they are.
        settings: Gives a table as the configuration has it.
    """
    found: dict[str, frozenset[str]] = {}
    for one in declared:
        found[one.plugin] = found.get(one.plugin, frozenset()).union(texts_in(settings(one.value.table)))
    return found


def texts_in(value: object) -> Iterator[str]:
    """Give every text that the user set somewhere in a table; defaults are the plugin's."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield from texts_in(getattr(value, name, None))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from texts_in(key)
            yield from texts_in(part)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from texts_in(part)
