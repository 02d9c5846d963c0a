"""This project's configuration inside a process that LMCache configures too."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from lmcache_core import Loaded, load
from lmcache_plugins.upstream.health_keys import SHARED_KEYS

log = logging.getLogger(__name__)

FILE_VARIABLE: Final = "LMCORE_CONFIG_FILE"
_SHARED_FILE_VARIABLE = "LMCACHE_CONFIG_FILE"
_SHARED_TABLE = "LMCACHE_EXTRA_CONFIG"
_OWN_PREFIXES = (_SHARED_TABLE, "LMCACHE_PLUGINS")
_ALIKE = 0.8


def read_configuration(environ: Mapping[str, str], *, url: str = "") -> Loaded:
    """Read the configuration as always, but for names that in such a process are LMCache's.

    The file is ``LMCORE_CONFIG_FILE``; else ``LMCACHE_CONFIG_FILE`` where it names a TOML file; else
    ``./lmcache.toml`` where there is one. Of the ``LMCACHE_*`` variables only those of ``extra_config`` and
    ``plugins`` are taken. Of the table in ``LMCACHE_EXTRA_CONFIG`` itself, which is LMCache's and its
    connectors' too, only the keys that are this project's or a loaded plugin's are.

    Args:
        environ: Such as `os.environ`.
        url: Address of the one store to use, in place of all that are configured; ``""`` for these.

    Raises:
        ConfigError: Names all offenders at once.
        PluginError: A required plugin did not load, or two plugins clash.
    """
    chosen = environ.get(FILE_VARIABLE, "")
    shared_file = environ.get(_SHARED_FILE_VARIABLE, "")
    if not chosen and shared_file.endswith(".toml"):
        chosen = shared_file
    file = Path(chosen) if chosen else None
    own = {name: value for name, value in environ.items() if name.startswith(_OWN_PREFIXES)}
    overrides: dict[str, object] = {}
    if url:
        overrides = {"remote_url": url, "remotes": [], "local_disk": None, "max_local_disk_size": 0.0}
    shared = _table(own)
    loaded = load(config_file=file, overrides=overrides, environ=own)
    if not shared:
        return loaded
    fields = type(loaded.configuration.values.extra_config).model_fields
    ours = _ours(shared, [field.alias or name for name, field in fields.items()])
    return load(config_file=file, overrides=overrides, environ={**own, _SHARED_TABLE: json.dumps(ours)})


def _table(own: dict[str, str]) -> dict[str, Any]:
    """Take the shared table out of the variables; one that is no table stays in, for the validation to refuse."""
    text = own.get(_SHARED_TABLE, "")
    try:
        table = json.loads(text) if text else None
    except ValueError:
        return {}
    if table is None or isinstance(table, dict):
        own.pop(_SHARED_TABLE, None)
    return table if isinstance(table, dict) else {}


def _ours(table: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Give the keys of the shared table that are known, and say what may have been meant to be one.

    The health keys that LMCache has too are not among them: they are read from LMCache's configuration, where
    this table is part of.
    """
    ours = {}
    for key, value in table.items():
        if key in SHARED_KEYS:
            continue
        if key in known:
            ours[key] = value
            continue
        alike = difflib.get_close_matches(key, known, 1, _ALIKE)
        if alike:
            log.warning(
                "%s: %r is left to lmcache, as no loaded plugin has it; did you mean %r?", _SHARED_TABLE, key, *alike
            )
        elif isinstance(value, dict):
            log.warning("%s: table %r is left to lmcache, as no loaded plugin has it", _SHARED_TABLE, key)
    return ours
