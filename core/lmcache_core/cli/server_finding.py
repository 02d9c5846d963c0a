"""Whether the cache server that a configuration counts on is there."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core.cli.finding import Finding, fail, ok, warn
from lmcache_core.cli.server_at import server_at
from lmcache_core.config.model import CoreConfig
from lmcache_core.errors import ConfigError, LMCacheError

_SUBJECT = "server"


def examine_server(values: CoreConfig) -> Iterator[Finding]:
    """Ask the server, where `mode` says that there is one; its absence only costs the cache."""
    if values.mode != "server":
        return
    try:
        page = server_at(values.server_address or "", None)
        document = page.read()
    except ConfigError as error:
        yield fail(_SUBJECT, str(error))
        return
    except LMCacheError as error:
        yield warn(_SUBJECT, f"{error}; without it everything is recomputed")
        return
    health = document["health"]
    who = f"{page.address}, version {document.get('version')}, pid {document.get('pid')}"
    if health.get("healthy") is True:
        yield ok(_SUBJECT, f"{who}, is {health.get('state')}")
    else:
        yield warn(_SUBJECT, f"{who}, is {health.get('state')}: {health.get('reason')}")
