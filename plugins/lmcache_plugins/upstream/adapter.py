"""Makes one of our stores a remote of LMCache, by address or by the name of a plugin."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

from lmcache.v1.storage_backend.connector import ConnectorAdapter, extract_plugin_type

from lmcache_core import ConfigError, open_tiers
from lmcache_plugins.upstream.chunk_store import ChunkStore
from lmcache_plugins.upstream.configured import read_configuration
from lmcache_plugins.upstream.connector import LMCoreConnector
from lmcache_plugins.upstream.health_keys import HealthKeys

log = logging.getLogger(__name__)

PLUGIN_TYPE: Final = "lmcore"
SCHEMA: Final = f"{PLUGIN_TYPE}+"
_PLUGIN = "plugin://"
_SHARE_OF_LMCACHES_PATIENCE = 0.9  # so that our answer comes before LMCache gives up and loses it


class LMCoreConnectorAdapter(ConnectorAdapter):  # type: ignore[misc] # LMCache is not where mypy runs
    """Takes ``remote_url: lmcore+redis://host:6379`` and ``remote_storage_plugins: [lmcore]``."""

    def __init__(self) -> None:
        super().__init__(SCHEMA)

    def can_parse(self, url: str) -> bool:
        """Tell whether an address is for one of our stores."""
        if url.startswith(_PLUGIN):
            return str(extract_plugin_type(url.removeprefix(_PLUGIN))) == PLUGIN_TYPE
        return url.startswith(SCHEMA)

    def create_connector(self, context: Any) -> LMCoreConnector:
        """Make the connector; LMCache says in its log why it could not be made.

        Raises:
            ConfigError: The address, or LMCache's configuration, cannot be served; says which and why.
            PluginUnavailableError: What the store needs is not installed; says how to install it.
        """
        _object_to(context.config)
        loaded = read_configuration(os.environ, url=_address(context))
        health_keys = HealthKeys.of(context.config.extra_config, loaded.configuration.values.extra_config)
        timeout_s = _SHARE_OF_LMCACHES_PATIENCE * float(context.config.blocking_timeout_secs)

        def open_store(full_bytes: int) -> ChunkStore:
            (tier,) = open_tiers(loaded)
            log.info("lmcore: %s keeps chunks of %d bytes for lmcache", tier.url, full_bytes)
            return ChunkStore(tier, full_bytes, timeout_s, health_keys.ping_timeout)

        return LMCoreConnector(open_store, context.local_cpu_backend, context.config, context.metadata)


def _object_to(config: Any) -> None:
    if config.use_layerwise:
        raise ConfigError("use_layerwise: lmcore keeps whole chunks; set it to false, or use another remote")
    if config.remote_serde != "naive":
        raise ConfigError(f"remote_serde: lmcore keeps chunks as they are; set it to naive, not {config.remote_serde}")
    if config.blocking_timeout_secs <= 0:
        raise ConfigError(f"blocking_timeout_secs: must be above 0, got {config.blocking_timeout_secs}")


def _address(context: Any) -> str:
    if context.plugin_name is None:
        return str(context.url).removeprefix(SCHEMA)
    key = f"remote_storage_plugin.{context.plugin_name}.url"
    address = (context.config.extra_config or {}).get(key)
    if not address:
        raise ConfigError(f"extra_config.{key}: is not set; give the address of a store, such as redis://host:6379")
    return str(address).removeprefix(SCHEMA)
