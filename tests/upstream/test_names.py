"""LMCache's own names do not stop this project where both are installed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from lmcache_core import ConfigError, load

READ = re.compile(r"""(?:environ(?:\.get)?|getenv)\s*[(\[]\s*["'](LMCACHE_[A-Z0-9_]+)["']""")
RETIRED = {"LMCACHE_USE_EXPERIMENTAL"}


def unknown(names: set[str]) -> list[str]:
    """Sentences about those that a start is refused for, whatever their values."""
    try:
        load(environ=dict.fromkeys(names, "1"))
    except ConfigError as error:
        return [line for line in str(error).splitlines() if "unknown" in line]
    return []


def test_every_key_of_lmcache_is_used_or_set_aside() -> None:
    from lmcache.v1 import config as upstream

    keys = {*upstream._CONFIG_DEFINITIONS, *upstream._CONFIG_ALIASES}

    assert len(keys) > 100
    assert unknown({f"LMCACHE_{key.upper()}" for key in keys}) == []


def test_every_variable_that_lmcache_reads_is_used_or_set_aside() -> None:
    package = importlib.util.find_spec("lmcache")
    assert package is not None
    sources = Path(str(package.origin)).parent.rglob("*.py")
    names = {name for path in sources for name in READ.findall(path.read_text(errors="replace"))}

    assert len(names) > 15
    assert unknown(names - RETIRED) == []
