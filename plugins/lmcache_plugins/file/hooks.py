"""Built-in plugin ``file``; registered by an entry point like any other."""

from __future__ import annotations

from collections.abc import Iterator

from lmcache_core import (
    BackendContext,
    ConfigError,
    PluginSettings,
    StorageBackend,
    StorageBackendSpec,
    StoreURL,
    hookimpl,
)
from lmcache_plugins.file.backend import FileBackend
from lmcache_plugins.file.disk import DiskBackend
from lmcache_plugins.file.location import Location
from lmcache_plugins.file.settings import FileSettings, LocalDiskSettings


def build_file(url: StoreURL, options: PluginSettings | None, context: BackendContext) -> StorageBackend:
    """Make the store of a ``file://`` address.

    Raises:
        ConfigError: The address is no absolute path.
    """
    settings = options if isinstance(options, FileSettings) else FileSettings()
    location = Location.of(url)
    return FileBackend(
        location.folder,
        name=context.name,
        fsync=location.fsync or settings.fsync,
        stale_temporary_s=settings.stale_temporary_s,
    )


def build_disk(url: StoreURL, options: PluginSettings | None, context: BackendContext) -> StorageBackend:
    """Make the store of a ``disk://`` address; the core makes one from ``local_disk``.

    Raises:
        ConfigError: The address is no absolute path, or there is no bound.
    """
    settings = options if isinstance(options, LocalDiskSettings) else LocalDiskSettings()
    location = Location.of(url)
    if context.capacity_bytes <= 0:
        raise ConfigError(f"{url}: a disk:// store needs a bound; set max_local_disk_size above 0 GiB")
    return DiskBackend(
        location.folder,
        name=context.name,
        capacity_bytes=context.capacity_bytes,
        fsync=location.fsync or settings.fsync,
    )


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    """Name the models of the two tables."""
    yield FileSettings
    yield LocalDiskSettings


@hookimpl
def lmcache_storage_backends() -> Iterator[StorageBackendSpec]:
    """Declare the stores behind file:// and disk://."""
    yield StorageBackendSpec(schemes=("file",), options=FileSettings, build=build_file)
    yield StorageBackendSpec(schemes=("disk",), options=LocalDiskSettings, build=build_disk)
