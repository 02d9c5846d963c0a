"""What is still normal for a file system."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lmcache_core import PluginSettings


class LocalDiskHealthSettings(PluginSettings):
    """Table ``[extra_config.local_disk_health]``."""

    table: ClassVar[str] = "local_disk_health"

    least_free_gib: float = Field(default=1.0, ge=0)
    """GiB of free space below which the check has a reservation."""

    least_free_inodes: int = Field(default=10_000, ge=0)
    """Free inodes below which it has one; every chunk is a file."""
