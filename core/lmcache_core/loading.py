"""Joins the configuration with the plugins that complete it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lmcache_core.config.model import TableOwner
from lmcache_core.config.sources import Sources, read_sources
from lmcache_core.config.validate import Configuration, validate
from lmcache_core.registry.collect import PluginRegistry
from lmcache_core.registry.load import load_plugins


@dataclass(frozen=True, slots=True)
class Loaded:
    """Plugins and the configuration that they complete."""

    registry: PluginRegistry
    configuration: Configuration


def load(
    *,
    config_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    third_party: bool = True,
) -> Loaded:
    """Read the configuration, load the plugins that it allows, and validate it with their tables.

    Args:
        config_file: Else ``LMCACHE_CONFIG_FILE``, else ``./lmcache.toml`` where there is one.
        overrides: Keys that win over every other source.
        environ: Instead of the process's own.
        third_party: False blocks every plugin but the built-in ones, whatever the configuration says.

    Raises:
        ConfigError: Names all offenders at once.
        PluginError: A required plugin did not load, or two plugins clash.
    """
    sources = read_sources(
        config_file=config_file, environ=os.environ if environ is None else environ, overrides=overrides
    )
    table = sources.plugins()
    registry = load_plugins(
        disabled=table.disabled,
        required=table.required,
        third_party=third_party and table.third_party,
        load_timeout_s=table.load_timeout_secs,
    )
    return Loaded(registry, complete(sources, registry))


def read_mode(
    config_file: str | Path | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Literal["in_process", "server"]:
    """Read where the configuration wants the cache, without loading a plugin or building anything.

    Args:
        config_file: Else ``LMCACHE_CONFIG_FILE``, else ``./lmcache.toml`` where there is one.
        overrides: Keys that win over every other source.
        environ: Instead of the process's own.

    Raises:
        ConfigError: The file cannot be read, or ``mode`` is wrong. Other faults are for `load` to name.
    """
    sources = read_sources(
        config_file=None if config_file is None else Path(config_file),
        environ=os.environ if environ is None else environ,
        overrides=overrides,
    )
    return sources.mode()


def complete(sources: Sources, registry: PluginRegistry) -> Configuration:
    """Validate a configuration with the tables, policies and schemes of the loaded plugins."""
    return validate(
        sources,
        [TableOwner(table.value, table.plugin, table.origin) for table in registry.tables()],
        policies={name: policy.plugin for name, policy in registry.policies().items()},
        schemes={scheme: backend.plugin for scheme, backend in registry.backends().items()},
        unloaded=registry.unloaded(),
    )
