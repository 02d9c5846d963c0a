"""Lets other processes look up what the cache of an engine in this process holds, such as its scheduler's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmcache_core.access.local import LocalAccess
from lmcache_core.app.in_process import CacheManager
from lmcache_core.app.status import describe_host
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.contracts.layout import KVLayout
from lmcache_core.errors import LayoutError
from lmcache_core.server.control import ControlServer
from lmcache_core.wire.address import parse_address
from lmcache_core.wire.messages import Register


def listen(manager: CacheManager, address: str) -> ControlServer:
    """Serve lookups, releases and clears against a cache in this process; KV is not lent to others.

    Args:
        manager: The cache; started. It outlives what is returned.
        address: A socket file or loopback port, see ``server_address``.

    Returns:
        The serving side; `stop` it before the manager.

    Raises:
        ConfigError: It is no address.
        LMCacheError: It is taken.
    """
    instance = manager.instance

    def open_format(layout: KVLayout, wish: Register) -> LocalAccess:
        asked = (wish.model_name, wish.world_size, tuple(wish.ranks), layout.fingerprint)
        own = (instance.model_name, instance.world_size, (instance.rank,), instance.layout.fingerprint)
        if asked != own:
            raise LayoutError(
                f"the cache at {address} is that of model {own[0]!r}, rank {instance.rank} of {own[1]}, "
                f"layout {own[3]}; "
                f"asked was for model {asked[0]!r}, ranks {list(asked[2])} of {asked[1]}, layout {asked[3]}"
            )
        return manager.access

    def registered(namespace: KeyNamespace, layout: KVLayout, model_type: str) -> None:
        """Say nothing: the engine itself has told the journal at its start."""

    def status() -> Mapping[str, Any]:
        return describe_host(manager.host)

    server = ControlServer(
        parse_address(address),
        arena=None,
        open_format=open_format,
        on_registered=registered,
        is_healthy=manager.is_healthy,
        reason=lambda: manager.health.report().reason,
        status=status,
        plugins=manager.registry.in_force(),
        metrics=manager.metrics,
        timeout_s=manager.config.values.blocking_timeout_secs,
    )
    server.claim()
    server.start()
    return server
