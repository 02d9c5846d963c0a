"""Built-in plugin ``redis``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import (
    BackendContext,
    PluginSettings,
    StorageBackend,
    StorageBackendSpec,
    StoreURL,
    hookimpl,
)
from lmcache_plugins.redis.address import SCHEMES, RedisAddress
from lmcache_plugins.redis.backend import RedisBackend
from lmcache_plugins.redis.settings import RedisSettings


def build_redis(url: StoreURL, options: PluginSettings | None, context: BackendContext) -> StorageBackend:
    """Make the store of an address.

    Raises:
        ConfigError: The address or a file named in the table is wrong.
    """
    settings = options if isinstance(options, RedisSettings) else RedisSettings()
    return RedisBackend(
        RedisAddress.of(url, settings),
        name=context.name,
        connections=context.connections,
        key_prefix=settings.key_prefix,
        ttl_s=settings.ttl_s,
    )


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the model of table ``[extra_config.redis]``."""
    yield RedisSettings


@hookimpl
def lmcache_storage_backends() -> Iterator[StorageBackendSpec]:
    """Declare the store behind all of its schemes."""
    yield StorageBackendSpec(
        schemes=SCHEMES,
        options=RedisSettings,
        build=build_redis,
        requires=("redis",),
        extra="lmcache-core[redis]",
    )
