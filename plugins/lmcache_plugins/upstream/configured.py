"""This project's configuration inside a process that LMCache configures too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lmcache_core import Loaded, load

FILE_VARIABLE: Final = "LMCORE_CONFIG_FILE"
_SHARED_FILE_VARIABLE = "LMCACHE_CONFIG_FILE"
_SHARED_TABLE = "LMCACHE_EXTRA_CONFIG"
_OWN_PREFIXES = (_SHARED_TABLE, "LMCACHE_PLUGINS")


def read_configuration(environ: Mapping[str, str], *, url: str = "") -> Loaded:
    """Read the configuration as always, but for names that in such a process are LMCache's.

    The file is ``LMCORE_CONFIG_FILE``; else ``LMCACHE_CONFIG_FILE`` where it names a TOML file; else
    ``./lmcache.toml`` where there is one. Of the ``LMCACHE_*`` variables only those of ``extra_config`` and
    ``plugins`` are taken.

    Args:
        environ: Such as `os.environ`.
        url: Address of the one store to use, in place of all that are configured; ``""`` for these.

    Raises:
        ConfigError: Names all offenders at once.
        PluginError: A required plugin did not load, or two plugins clash.
    """
    chosen = environ.get(FILE_VARIABLE, "")
    shared = environ.get(_SHARED_FILE_VARIABLE, "")
    if not chosen and shared.endswith(".toml"):
        chosen = shared
    own = {name: value for name, value in environ.items() if name.startswith(_OWN_PREFIXES)}
    if _SHARED_TABLE in own:
        own[_SHARED_TABLE] = _without_plugin_keys(own[_SHARED_TABLE])
    overrides: dict[str, object] = {}
    if url:
        overrides = {"remote_url": url, "remotes": [], "local_disk": None, "max_local_disk_size": 0.0}
    return load(config_file=Path(chosen) if chosen else None, overrides=overrides, environ=own)


def _without_plugin_keys(text: str) -> str:
    """Take LMCache's keys such as ``storage_plugin.mine.class_name`` out; leave all else to the validation."""
    try:
        table = json.loads(text)
    except ValueError:
        return text
    if not isinstance(table, dict):
        return text
    return json.dumps({key: value for key, value in table.items() if "." not in key})
