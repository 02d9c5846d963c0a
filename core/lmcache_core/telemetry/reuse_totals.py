"""What the reuse tracker has counted, as plain numbers that may leave the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SECONDS_BOUNDS = (
    *(1.0, 4.0, 15.0, 60.0, 300.0, 900.0),
    *(3600.0, 14_400.0, 43_200.0, 86_400.0),
    *(259_200.0, 604_800.0, 1_209_600.0, 2_592_000.0),
)
"""Upper bounds of lifespans and gaps: a second to 30 days, each three to five times the last."""

REUSE_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
"""Upper bounds of reuse counts."""

BURST_S = 3600.0
"""A chunk whose reuses all lie within this time is of class ``burst``; a bound of `SECONDS_BOUNDS`."""

SHARED_REUSES = 32.0
"""A chunk that lived longer and was reused more often is a ``shared_prefix``; a bound of `REUSE_BOUNDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseTotals:
    """Counts since the tracker began, or of an interval. Histograms go by upper bound.

    Attributes:
        accesses: Accesses to chunks, sampled or not.
        served: Of these, accesses that the cache served.
        sampled: Accesses to sampled chunks.
        seen_before: Of these, accesses to a chunk that is in the table: seen, and not retired since.
        found: Of those, accesses that the cache served.
        lost: Of those, not served, though the cache held the chunk at an earlier access.
        retired_idle: Chunks retired because nobody used them for the idle time.
        retired_by_cap: Chunks retired because the table was full. They are in no histogram.
        never_reused: Chunks of `retired_idle` that were used once.
        lifespan: Seconds from first reuse to last access, of chunks of `retired_idle` that were reused.
        gap: Seconds between two accesses to a chunk, of all reuses.
        reuse_lifespan: ``<reuses>|<lifespan>``, of the same chunks as `lifespan`.
    """

    accesses: int = 0
    served: int = 0
    sampled: int = 0
    seen_before: int = 0
    found: int = 0
    lost: int = 0
    retired_idle: int = 0
    retired_by_cap: int = 0
    never_reused: int = 0
    lifespan: Mapping[str, int]
    gap: Mapping[str, int]
    reuse_lifespan: Mapping[str, int]

    def since(self, earlier: ReuseTotals) -> ReuseTotals:
        """Give what came after an earlier count."""
        return ReuseTotals(
            accesses=self.accesses - earlier.accesses,
            served=self.served - earlier.served,
            sampled=self.sampled - earlier.sampled,
            seen_before=self.seen_before - earlier.seen_before,
            found=self.found - earlier.found,
            lost=self.lost - earlier.lost,
            retired_idle=self.retired_idle - earlier.retired_idle,
            retired_by_cap=self.retired_by_cap - earlier.retired_by_cap,
            never_reused=self.never_reused - earlier.never_reused,
            lifespan=_minus(self.lifespan, earlier.lifespan),
            gap=_minus(self.gap, earlier.gap),
            reuse_lifespan=_minus(self.reuse_lifespan, earlier.reuse_lifespan),
        )


def reuse_classes(reuse_lifespan: Mapping[str, int]) -> dict[str, int]:
    """Sort chunks that were reused into ``burst``, ``daily`` and ``shared_prefix``."""
    classes = {"burst": 0, "daily": 0, "shared_prefix": 0}
    for cell, count in reuse_lifespan.items():
        reuses, _, lifespan_s = cell.partition("|")
        if float(lifespan_s) <= BURST_S:
            classes["burst"] += count
        elif float(reuses) <= SHARED_REUSES:
            classes["daily"] += count
        else:
            classes["shared_prefix"] += count
    return classes


def _minus(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Subtract a histogram; empty buckets stay, empty cells of two bounds go."""
    rest = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in rest.items() if count or "|" not in name}
