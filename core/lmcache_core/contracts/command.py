"""Things a plugin may add that the core calls by name: commands and usage sinks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lmcache_core.contracts.settings import PluginSettings

_NAME = re.compile(r"[a-z][a-z0-9\-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """A sub-command of ``lmcachectl``.

    Attributes:
        name: As typed: lower-case letters, digits and dashes.
        help: One line for ``lmcachectl --help``.
        target: ``package.module:attribute`` of a click command; imported when the command is run.
    """

    name: str
    help: str
    target: str

    def __post_init__(self) -> None:
        """Reject a bad value here, where the traceback shows the plugin's line."""
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"command name {self.name!r} must be lower-case letters, digits and dashes")
        if _TARGET.fullmatch(self.target) is None:
            raise ValueError(f"command target {self.target!r} must be 'package.module:attribute'")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSinkSpec:
    """A place that a fleet collector can write usage messages to.

    Attributes:
        name: As the configuration writes it.
        options: Model of the sink's own table, or None.
        build: Makes the sink from its validated table.
    """

    name: str
    options: type[PluginSettings] | None
    build: Callable[[PluginSettings | None], object]
