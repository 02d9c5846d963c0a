"""What is still normal for CPU memory."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lmcache_core import PluginSettings


class LocalCPUHealthSettings(PluginSettings):
    """Table ``[extra_config.local_cpu_health]``."""

    table: ClassVar[str] = "local_cpu_health"

    most_refused_share: float = Field(default=0.1, ge=0, le=1)
    """Share of the blocks asked for within an interval that may be refused, as all memory is leased."""

    lease_grace_secs: float = Field(default=120.0, gt=0)
    """Seconds that a lease may outlive `pin_timeout_sec` before somebody is told."""
