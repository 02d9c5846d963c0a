"""What is still normal for a queue."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lmcache_core import PluginSettings


class WriteBehindHealthSettings(PluginSettings):
    """Table ``[extra_config.write_behind_health]``."""

    table: ClassVar[str] = "write_behind_health"

    full_share: float = Field(default=0.9, gt=0, le=1)
    """Share of `write_behind_chunks` that may wait before the check has a reservation."""
