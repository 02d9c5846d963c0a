"""Tables ``[extra_config.file]`` and ``[extra_config.local_disk]``."""

from __future__ import annotations

from pydantic import Field

from lmcache_core import PluginSettings


class FileSettings(PluginSettings):
    """Table ``[extra_config.file]``; environment ``LMCACHE_EXTRA_CONFIG__FILE__<KEY>``."""

    table = "file"

    fsync: bool = False
    """Force each chunk to the disk before it becomes visible; several times slower."""

    stale_temporary_s: float = Field(default=3600.0, ge=60)
    """Age from which on a half-written file counts as left behind by a writer that died; seconds."""


class LocalDiskSettings(PluginSettings):
    """Table ``[extra_config.local_disk]``; environment ``LMCACHE_EXTRA_CONFIG__LOCAL_DISK__<KEY>``."""

    table = "local_disk"

    fsync: bool = False
    """Force each chunk to the disk before it becomes visible; several times slower."""
