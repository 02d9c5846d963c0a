"""The validated configuration, and its rows as people see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lmcache_core.config.fields import fields_of
from lmcache_core.config.model import CoreConfig
from lmcache_core.config.origin import KeyPath, Merged, key_text, one_line
from lmcache_core.config.secrets import masked, shown
from lmcache_core.config.usage import UsageOptions
from lmcache_core.contracts.settings import PluginSettings

CORE_OWNER = "core"


@dataclass(frozen=True, slots=True)
class Row:
    """One key.

    Attributes:
        key: Such as ``extra_config.ping_interval``.
        value: JSON, secrets masked.
        source: ``default``, ``file:line``, ``env NAME`` or ``command line``.
        owner: ``core`` or the plugin's name.
    """

    key: str
    value: Any
    source: str
    owner: str

    @property
    def value_shown(self) -> str:
        """The value on one line."""
        return one_line(shown(self.value))


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything the user configured, validated. Nothing in its `repr` is secret.

    Attributes:
        values: The core's model with the plugins' tables.
        file: The file that was read, or None.
        warnings: Sentences to log once at start-up.
        ignored: Variables that Kubernetes or Docker set and that were left alone.
        owners: Table's name to its model and its plugin's name, of all loaded plugins.
        merged: What was given, and where.
        usage: What was said about usage telemetry.
    """

    values: CoreConfig
    file: Path | None
    warnings: tuple[str, ...]
    ignored: tuple[str, ...]
    owners: Mapping[str, tuple[type[PluginSettings], str]]
    merged: Merged
    usage: UsageOptions = field(default_factory=UsageOptions)

    def __repr__(self) -> str:
        return f"Configuration(file={str(self.file)!r}, warnings={len(self.warnings)})"

    def table(self, name: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""
        return self.values.extra_config.table(name)

    def rows(self, *, all: bool = False) -> list[Row]:  # noqa: A002 - the name of the command's switch
        """List the effective value of every key and where it comes from.

        Args:
            all: Also the tables of loaded plugins that the configuration leaves out, with their defaults.
        """
        rows = list(self._rows(self.values, ()))
        rows += [Row(key, value, source, CORE_OWNER) for key, value, source in self.usage.rows()]
        if all:
            for name, (model, plugin) in self.owners.items():
                if self.table(name) is None:
                    rows.extend(self._absent(model, ("extra_config", name), plugin))
        return rows

    def _rows(self, table: BaseModel, path: KeyPath, owner: str = CORE_OWNER) -> Iterator[Row]:
        for key, found in fields_of(type(table)).items():
            name = next(name for name, each in type(table).model_fields.items() if each is found)
            value, here = getattr(table, name), (*path, key)
            if isinstance(value, PluginSettings):
                yield from self._rows(value, here, self.owners.get(key, (None, owner))[1])
            elif isinstance(value, BaseModel):
                yield from self._rows(value, here, owner)
            elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
                for index, item in enumerate(value):
                    yield from self._item_rows(item, (*here, index))
            elif not (value is None and key in self.owners and path and path[-1] == "extra_config"):
                yield Row(key_text(here), masked(key, found, value), self.merged.origin_of_leaf(here).label, owner)

    def _item_rows(self, item: BaseModel, path: KeyPath) -> Iterator[Row]:
        """The keys that an entry of a list of tables gives; a remote takes the others from the global table."""
        for row in self._rows(item, path):
            if row.source != "default":
                yield row

    def _absent(self, model: type[PluginSettings], path: KeyPath, plugin: str) -> Iterator[Row]:
        for key, found in fields_of(model).items():
            default = "required" if found.is_required() else found.get_default(call_default_factory=True)
            yield Row(key_text((*path, key)), masked(key, found, default), "default", plugin)
