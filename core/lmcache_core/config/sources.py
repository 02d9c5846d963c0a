"""The three sources, read and not yet judged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from lmcache_core.config.document import read_document
from lmcache_core.config.environment import CONFIG_FILE
from lmcache_core.config.judge import judge
from lmcache_core.config.model import CoreConfig, PluginsTable
from lmcache_core.config.origin import KeyPath, Layer, Tree, overlay
from lmcache_core.errors import ConfigError

DEFAULT_FILE: Final = "lmcache.toml"
_PLUGINS: Final = "plugins"
_MODE: Final = "mode"


@dataclass(frozen=True, slots=True)
class Sources:
    """File, environment and command line.

    Attributes:
        file: The file that was read, or None.
        document: Its content.
        environ: All variables; only ``LMCACHE_*`` and a few known others are looked at.
        overrides: The command line.
    """

    file: Path | None
    document: Layer
    environ: Mapping[str, str] = field(repr=False)
    overrides: Layer

    def plugins(self) -> PluginsTable:
        """Give the ``[plugins]`` table, which steers what is loaded before the rest can be judged.

        Raises:
            ConfigError: The table is wrong. Whatever else can be judged without plugins is named too.
        """
        return self._values(_PLUGINS).plugins

    def mode(self) -> Literal["in_process", "server"]:
        """Give ``mode``, which decides what is built at all.

        Raises:
            ConfigError: It is wrong. Whatever else can be judged without plugins is named too.
        """
        return self._values(_MODE).mode

    def _values(self, key: str) -> CoreConfig:
        verdict = judge(document=self.document, overrides=self.overrides, environ=self.environ, owners=(), known=None)
        if any(problem.path[:1] == (key,) for problem in verdict.problems):
            raise ConfigError(*map(str, verdict.problems))
        return verdict.values


def read_sources(
    *,
    config_file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    cwd: Path | None = None,
) -> Sources:
    """Read the file and keep environment and command line with it.

    Args:
        config_file: From ``--config``; else ``LMCACHE_CONFIG_FILE``, else ``./lmcache.toml`` if it is there.
        environ: Such as `os.environ`.
        overrides: Keys from the command line; nested, or with dots, such as ``extra_config.ping_interval``.
        cwd: Where relative paths begin; default the process's.

    Raises:
        ConfigError: The file is missing, unreadable or not TOML, or an override cannot be a setting.
    """
    over = Layer("command line", _nested(overrides or {}))
    path, named_by = _choose(config_file, environ, cwd or Path())
    document = read_document(path, named_by=named_by) if path is not None else Layer("file")
    return Sources(path, document, dict(environ), over)


def _choose(config_file: Path | None, environ: Mapping[str, str], cwd: Path) -> tuple[Path | None, str]:
    if config_file is not None:
        if not str(config_file) or config_file == Path():
            raise ConfigError("--config: names no file; give the path of a TOML file")
        return cwd / config_file.expanduser(), "--config"
    named = environ.get(CONFIG_FILE)
    if named is not None:
        if not named.strip():
            raise ConfigError(f"{CONFIG_FILE}: is empty; give the path of a TOML file, or unset it")
        return cwd / Path(named).expanduser(), CONFIG_FILE
    default = cwd / DEFAULT_FILE
    return (default, DEFAULT_FILE) if os.path.lexists(default) else (None, "")


def _nested(overrides: Mapping[str, object]) -> Tree:
    tree: Tree = {}
    for key, value in overrides.items():
        parts = key.split(".")
        branch: Any = _plain(value, tuple(parts))
        for part in reversed(parts):
            branch = {part: branch}
        tree = overlay(tree, branch)
    return tree


def _plain(value: object, path: KeyPath) -> Any:
    """Turn a Python value into the JSON-like one that a file would hold."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part, (*path, str(key))) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, (*path, index)) for index, part in enumerate(value)]
    key = Layer("command line").origin(path).about(path)
    raise ConfigError(f"{key}: a value of type {type(value).__name__!r} cannot be a setting")
