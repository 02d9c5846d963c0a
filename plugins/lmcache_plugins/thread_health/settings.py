"""What is still normal for a thread."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lmcache_core import PluginSettings


class ThreadHealthSettings(PluginSettings):
    """Table ``[extra_config.thread_health]``."""

    table: ClassVar[str] = "thread_health"

    stuck_after_secs: float = Field(default=30.0, gt=0)
    """Seconds without a sign of life after which a thread counts as stuck; three of its intervals if that is longer."""
