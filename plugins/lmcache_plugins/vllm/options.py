"""What ``kv_connector_extra_config`` says to this connector."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmcache_core import ConfigError

PREFIX = "lmcache."

MODES = ("in_process", "server", "")
"""Where the cache is; the last one: where the cache's own configuration says."""

_SWITCHES = ("async_load", "async_lookup", "save_generated")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions:
    """The connector's own options, and the rest for the core.

    Attributes:
        config_file: ``lmcache.config_file``; None for the core's own search.
        mode: ``lmcache.mode``, else ``LMCACHE_MODE``; one of `MODES`.
        async_load: Load beside vLLM's steps; False loads before the step that needs the tokens.
        async_lookup: Let vLLM go on with other requests while a lookup is under way.
        save_generated: Keep the KV of generated tokens too.
        loads: Whether vLLM's ``kv_role`` has this instance load.
        saves: Whether it has it store.
        overrides: Every other ``lmcache.`` key, for the core.
        ignored: Keys without the prefix, which nobody reads.
    """

    config_file: str | None = None
    mode: str = ""
    async_load: bool = True
    async_lookup: bool = True
    save_generated: bool = False
    loads: bool = True
    saves: bool = True
    overrides: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def read_options(
    extra_config: Mapping[str, Any],
    *,
    loads: bool = True,
    saves: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> ConnectorOptions:
    """Read the options.

    Raises:
        ConfigError: Names every value that cannot be used. Unknown keys are the core's to refuse.
    """
    given = {key.removeprefix(PREFIX): value for key, value in extra_config.items() if key.startswith(PREFIX)}
    problems = [
        f"{PREFIX}{name}: must be true or false, got {given[name]!r}"
        for name in _SWITCHES
        if not isinstance(given.get(name, True), bool)
    ]
    mode = given.pop("mode", environ.get("LMCACHE_MODE", ""))
    if mode not in MODES:
        problems.append(f"{PREFIX}mode: must be {' or '.join(MODES[:2])}, got {mode!r}")
    config_file = given.pop("config_file", None)
    if not isinstance(config_file, str | None):
        problems.append(f"{PREFIX}config_file: must be a path, got {config_file!r}")
    if problems:
        raise ConfigError("; ".join(problems))
    switches = {name: given.pop(name) for name in _SWITCHES if name in given}
    return ConnectorOptions(
        config_file=config_file,
        mode=mode,
        loads=loads,
        saves=saves,
        overrides=given,
        ignored=tuple(key for key in extra_config if not key.startswith(PREFIX)),
        **switches,
    )
