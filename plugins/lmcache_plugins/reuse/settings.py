"""Table ``[extra_config.reuse]``."""

from __future__ import annotations

from pydantic import Field

from lmcache_core import PluginSettings


class ReuseSettings(PluginSettings):
    """Table ``[extra_config.reuse]``; environment ``LMCACHE_EXTRA_CONFIG__REUSE__<KEY>``."""

    table = "reuse"

    enabled: bool = False
    """Track how chunks are reused, for ``lmcachectl reuse report`` and usage telemetry."""

    sample_rate: int = Field(default=64, ge=1, le=65_536)
    """One chunk of how many is tracked; 1 tracks all. Take 8 or less for a cache below some 2000 chunks."""

    idle_ttl_s: float = Field(default=259_200.0, gt=0)
    """A chunk that nobody asked for in so many seconds is retired, and is new when it comes back."""

    table_cap: int = Field(default=65_536, ge=1, le=10_000_000)
    """Most chunks tracked at once; each takes up to 200 bytes."""

    report_folder: str = ""
    """Where the report is left; ``lmcache/reuse`` in the user's folder for state where it is empty."""

    report_interval_s: float = Field(default=60.0, ge=1)
    """Seconds between two reports, while there are lookups."""
