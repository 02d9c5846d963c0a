"""The reuse tracker's figures at one moment, as a JSON document of bucketed aggregates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lmcache_core.telemetry.miss_ratio import MissRatioCurve
from lmcache_core.telemetry.reuse import ChunkReuseTracker
from lmcache_core.telemetry.reuse_totals import ReuseTotals

FORMAT = 1
"""Rises when a key changes its meaning or goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseSnapshot:
    """What the tracker knows. No digest, salt, tenant name or time of day is in it.

    Attributes:
        observed_s: Seconds the tracker has run; what was before is forgotten.
        idle_ttl_s: As the tracker was set up.
        table_cap: As the tracker was set up.
        tracked: Chunks in the table.
        chunk_tokens: Tokens in one chunk.
        chunk_bytes: KV bytes of one chunk; 0 while nothing was stored.
        totals: Counts since the start.
        living_once: Chunks in the table that were used once.
        living: The others, as `ReuseTotals.reuse_lifespan`.
        tenants: Sampled accesses and how many were to chunks seen before, for each of the first tenants.
        curve: Miss ratio over the cache's size.
    """

    observed_s: float
    idle_ttl_s: float
    table_cap: int
    tracked: int
    chunk_tokens: int
    chunk_bytes: int
    totals: ReuseTotals
    living_once: int
    living: Mapping[str, int]
    tenants: tuple[tuple[int, int], ...]
    curve: MissRatioCurve

    @classmethod
    def of(cls, tracker: ChunkReuseTracker, *, chunk_tokens: int, chunk_bytes: int) -> ReuseSnapshot:
        """Take the figures of a tracker."""
        once, living = tracker.living()
        return cls(
            observed_s=tracker.observed_s,
            idle_ttl_s=tracker.idle_ttl_s,
            table_cap=tracker.table_cap,
            tracked=tracker.tracked,
            chunk_tokens=chunk_tokens,
            chunk_bytes=chunk_bytes,
            totals=tracker.totals(),
            living_once=once,
            living=living,
            tenants=tuple((tenant.sampled, tenant.seen_before) for tenant in tracker.tenants),
            curve=tracker.curve(),
        )

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values."""
        curve = asdict(self.curve)
        curve["horizon_chunks"] = self.curve.horizon_chunks if math.isfinite(self.curve.horizon_chunks) else None
        return {"format": FORMAT, **asdict(self), "curve": curve}

    @classmethod
    def from_json(cls, value: object) -> ReuseSnapshot:
        """Read what `to_json` gave.

        Raises:
            ValueError: A sentence naming what is wrong.
        """
        if not isinstance(value, dict) or "format" not in value:
            raise ValueError("no reuse report")
        if value["format"] != FORMAT:
            raise ValueError(f"reuse report of format {value['format']!r}, and this version reads {FORMAT}")
        try:
            return cls._read(value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"damaged reuse report: {type(error).__name__} {error}") from error

    @classmethod
    def _read(cls, value: Mapping[str, Any]) -> ReuseSnapshot:
        return cls(
            observed_s=float(value["observed_s"]),
            idle_ttl_s=float(value["idle_ttl_s"]),
            table_cap=int(value["table_cap"]),
            tracked=int(value["tracked"]),
            chunk_tokens=int(value["chunk_tokens"]),
            chunk_bytes=int(value["chunk_bytes"]),
            totals=_totals(value["totals"]),
            living_once=int(value["living_once"]),
            living=_histogram(value["living"]),
            tenants=tuple((int(sampled), int(seen)) for sampled, seen in value["tenants"]),
            curve=_curve(value["curve"]),
        )


def _totals(value: Mapping[str, Any]) -> ReuseTotals:
    return ReuseTotals(
        accesses=int(value["accesses"]),
        served=int(value["served"]),
        sampled=int(value["sampled"]),
        seen_before=int(value["seen_before"]),
        found=int(value["found"]),
        lost=int(value["lost"]),
        retired_idle=int(value["retired_idle"]),
        retired_by_cap=int(value["retired_by_cap"]),
        never_reused=int(value["never_reused"]),
        lifespan=_histogram(value["lifespan"]),
        gap=_histogram(value["gap"]),
        reuse_lifespan=_histogram(value["reuse_lifespan"]),
    )


def _histogram(value: Mapping[str, Any]) -> dict[str, int]:
    counts = {str(name): int(count) for name, count in value.items()}
    for name in counts:
        for bound in name.split("|"):
            float(bound)
    return counts


def _curve(value: Mapping[str, Any]) -> MissRatioCurve:
    horizon = value["horizon_chunks"]
    sampled = tuple(map(int, value["sampled"]))
    buckets = {int(bucket): tuple(map(int, counts)) for bucket, counts in value["buckets"].items()}
    if len(sampled) < 2 or any(len(counts) != len(sampled) for counts in buckets.values()):  # noqa: PLR2004 - an error needs two
        raise ValueError("groups of the curve differ")
    if any(not 0 <= bucket < 4096 for bucket in buckets):  # noqa: PLR2004 - far beyond the distances of any table
        raise ValueError("a bucket of the curve is out of range")
    return MissRatioCurve(
        accesses=int(value["accesses"]),
        sample_rate=max(1, int(value["sample_rate"])),
        horizon_chunks=math.inf if horizon is None else float(horizon),
        sampled=sampled,
        buckets=buckets,
    )
