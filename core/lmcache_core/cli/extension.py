"""The installed plugins as a command sees them, and the sub-commands that they bring."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from lmcache_core.config.model import PluginsTable
from lmcache_core.config.sources import read_sources
from lmcache_core.contracts.command import CommandSpec
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.registry import Declared, PluginRegistry, load_plugins


@dataclass(frozen=True, slots=True)
class Installed:
    """What is installed.

    Attributes:
        registry: Loaded leniently: it says what is wrong instead of raising.
        doubts: Why the configuration's ``[plugins]`` could not be read; empty when it could.
    """

    registry: PluginRegistry
    doubts: tuple[str, ...] = ()


def load_installed(config_file: Path | None = None, *, third_party: bool = True) -> Installed:
    """Load the plugins as ``[plugins]`` says, and all of them where it cannot be read.

    Nothing that a plugin prints while it loads reaches stdout, which is the command's own.
    """
    table = PluginsTable()
    doubts: tuple[str, ...] = ()
    try:
        table = read_sources(config_file=config_file, environ=os.environ).plugins()
    except ConfigError as error:
        doubts = error.problems
    with contextlib.redirect_stdout(sys.stderr):
        registry = load_plugins(
            disabled=table.disabled,
            required=table.required,
            third_party=third_party and table.third_party,
            strict=False,
            load_timeout_s=table.load_timeout_secs,
        )
    return Installed(registry, doubts)


def find_plugin_command(name: str) -> click.Command | None:
    """Import the sub-command that a plugin brings; None where none brings it.

    Raises:
        PluginError: It cannot be imported, or is no click command.
    """
    declared = load_installed().registry.commands().get(name)
    return None if declared is None else _import_command(declared)


def _import_command(declared: Declared[CommandSpec]) -> click.Command:
    module, _, attribute = declared.value.target.partition(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise _blame(declared, f"raised {type(error).__name__}: {error}") from error
    if not isinstance(command, click.Command):
        raise _blame(declared, f"is an object of type {type(command).__name__!r}, no click command")
    return command


def _blame(declared: Declared[CommandSpec], what: str) -> PluginError:
    reason = f"command {declared.value.name!r} at {declared.value.target} {what}"
    return PluginError(plugin=declared.plugin, origin=declared.origin, reason=reason)
