"""Follows a sample of the chunks that prompts ask for, and how they are used again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from lmcache_core.telemetry.histogram import Histogram, Histogram2D
from lmcache_core.telemetry.miss_ratio import DistanceCounts, Estimate, MissRatioCurve
from lmcache_core.telemetry.reuse_table import ReuseTable
from lmcache_core.telemetry.reuse_totals import REUSE_BOUNDS, SECONDS_BOUNDS, ReuseTotals

SAMPLE_RATE = 64
IDLE_TTL_S = 3 * 86_400.0
TABLE_CAP = 65_536

_KEY_MASK = (1 << 60) - 1
_GROUP_SHIFT = 57  # the last three bits of a key: far from those that decided on the sample
_SALTS_KEPT = 64
OTHER_TENANTS = "other"


@dataclass(slots=True)
class TenantCount:
    """Sampled accesses of one tenant, and how many of them were to chunks seen before."""

    sampled: int = 0
    seen_before: int = 0


class ChunkReuseTracker:
    """Tells from a sample what a cache without limits would hit, and what a larger one would.

    A chunk is in the sample when the first 8 bytes of its digest, little-endian, are divisible by
    `sample_rate`: the same chunks on every host and after every restart. The table is bounded. No
    thread, no I/O; a digest never leaves it. Not thread-safe: its owner calls from one thread.

    A lookup's chunks count as used from the last to the first, as tier 0 has it, so a prefix is
    always more recent than what builds on it, and a hit of a chunk is a hit of its prefix.

    Args:
        sample_rate: One chunk of how many is tracked, at least 1.
        idle_ttl_s: A chunk nobody used for longer is retired and counts as new when it comes back.
        table_cap: Most chunks tracked; the least recently used goes first.
        clock: Seconds, for calls that name no time.

    Raises:
        ValueError: An argument below its least value.
    """

    __slots__ = (
        "_accesses",
        "_began_s",
        "_clock",
        "_distances",
        "_exact",
        "_found",
        "_gap",
        "_lifespan",
        "_lost",
        "_low_bits",
        "_never_reused",
        "_now_s",
        "_retired_by_cap",
        "_retired_idle",
        "_reuse_lifespan",
        "_salts",
        "_sampled",
        "_seen_before",
        "_served",
        "_table",
        "_tenants",
        "idle_ttl_s",
        "sample_rate",
        "table_cap",
    )  # with a dict each access costs a fifth more

    def __init__(
        self,
        *,
        sample_rate: int = SAMPLE_RATE,
        idle_ttl_s: float = IDLE_TTL_S,
        table_cap: int = TABLE_CAP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if sample_rate < 1 or table_cap < 1 or not idle_ttl_s > 0:
            raise ValueError(
                f"sample_rate and table_cap must be at least 1 and idle_ttl_s above 0, "
                f"got {sample_rate}, {table_cap} and {idle_ttl_s}"
            )
        self.sample_rate = sample_rate
        self.idle_ttl_s = idle_ttl_s
        self.table_cap = table_cap
        self._clock = clock
        self._low_bits = gcd(sample_rate, 256) - 1
        self._exact = sample_rate > self._low_bits + 1
        self._began_s = self._now_s = clock()
        self._table = ReuseTable()
        self._distances = DistanceCounts()
        self._lifespan = Histogram(SECONDS_BOUNDS)
        self._gap = Histogram(SECONDS_BOUNDS)
        self._reuse_lifespan = Histogram2D(REUSE_BOUNDS, SECONDS_BOUNDS)
        self._accesses = self._served = self._sampled = self._seen_before = self._found = self._lost = 0
        self._retired_idle = self._retired_by_cap = self._never_reused = 0
        self._salts: dict[str, int] = {}
        self._tenants: dict[str, TenantCount] = {}

    # -- feeding --------------------------------------------------------------

    def observe(
        self, digests: Sequence[bytes], now_s: float | None = None, *, found: int = 0, salt_hash: str = ""
    ) -> None:
        """Note one lookup.

        Args:
            digests: Of the prompt's chunks in order, at least 8 bytes each.
            now_s: When; the clock's time where left out. A time before the last call's is taken as that.
            found: Leading chunks that the cache has.
            salt_hash: The tenant's; equal digests of two tenants are two chunks.
        """
        count = len(digests)
        self._accesses += count
        low = self._low_bits
        if found:
            self._served += found
        if count == 1:
            if digests[0][0] & low:  # most short lookups end here; no loop is set up for them
                return
        else:
            for digest in digests:
                if not digest[0] & low:
                    break
            else:
                return
        held = [digest for digest in digests[:found] if not digest[0] & low]
        missing = [digest for digest in digests[found:] if not digest[0] & low]
        if self._exact:
            held, missing = self._sample(held), self._sample(missing)
        if held or missing:
            self._note(held, missing, self._time(now_s), salt_hash)

    def expire(self, now_s: float | None = None) -> None:
        """Retire the chunks that were idle for too long. `observe` does so too."""
        self._retire_idle(self._time(now_s))

    # -- telling --------------------------------------------------------------

    @property
    def tracked(self) -> int:
        """Chunks in the table."""
        return len(self._table)

    @property
    def observed_s(self) -> float:
        """Seconds from the start, which forgets everything before, to the last call."""
        return self._now_s - self._began_s

    @property
    def horizon_s(self) -> float:
        """How far back the table remembers: the idle time, or less soon after the start."""
        return min(self.idle_ttl_s, self.observed_s)

    @property
    def tenants(self) -> list[TenantCount]:
        """Counts of the first 64 tenants, then of all others together; without names."""
        return list(self._tenants.values())

    def totals(self) -> ReuseTotals:
        """Give all counts since the start."""
        return ReuseTotals(
            accesses=self._accesses,
            served=self._served,
            sampled=self._sampled,
            seen_before=self._seen_before,
            found=self._found,
            lost=self._lost,
            retired_idle=self._retired_idle,
            retired_by_cap=self._retired_by_cap,
            never_reused=self._never_reused,
            lifespan=self._lifespan.to_dict(),
            gap=self._gap.to_dict(),
            reuse_lifespan=self._reuse_lifespan.to_dict(),
        )

    def living(self) -> tuple[int, dict[str, int]]:
        """Look at the chunks in the table: how many were used once, and the others as `ReuseTotals.reuse_lifespan`."""
        table = self._table
        histogram = Histogram2D(REUSE_BOUNDS, SECONDS_BOUNDS)
        once = 0
        for slot in table.slots():
            reuses = table.reuse_count[slot]
            if reuses:
                histogram.add(reuses, table.last_access_s[slot] - table.first_reuse_s[slot])
            else:
                once += 1
        return once, histogram.to_dict()

    def curve(self) -> MissRatioCurve:
        """Give the miss ratio over the cache's size."""
        full = self._retired_by_cap > 0
        return self._distances.curve(
            accesses=self._accesses,
            sample_rate=self.sample_rate,
            horizon_chunks=float(self.table_cap * self.sample_rate) if full else float("inf"),
        )

    def ideal_hit_rate(self) -> Estimate:
        """Estimate the share of accesses that a cache without limits would hit; NaN before the first access.

        The seen-before share of sampled accesses, set against the number of all accesses: a hot chunk
        that happens to be in the sample does not lift it.
        """
        best = self.curve().best_miss_ratio()
        return Estimate(1.0 - best.share, best.error)

    # -- inside ---------------------------------------------------------------

    def _sample(self, digests: Sequence[bytes]) -> list[bytes]:
        rate = self.sample_rate
        return [digest for digest in digests if not int.from_bytes(digest[:8], "little") % rate]

    def _time(self, now_s: float | None) -> float:
        self._now_s = max(self._now_s, self._clock() if now_s is None else now_s)
        return self._now_s

    def _note(self, held: Sequence[bytes], missing: Sequence[bytes], now_s: float, salt_hash: str) -> None:
        self._retire_idle(now_s)
        salt = self._salt(salt_hash)
        tenant = self._tenant(salt_hash)
        keys = dict.fromkeys((_key(digest, salt) for digest in held), True)
        for digest in missing:
            keys.setdefault(_key(digest, salt), False)
        for key, stored in keys.items():  # all distances first: a lookup asks the cache as it was before
            self._count(key, tenant, stored=stored)
        for key in reversed(keys):
            self._use(key, now_s, stored=keys[key])

    def _count(self, key: int, tenant: TenantCount, *, stored: bool) -> None:
        self._sampled += 1
        tenant.sampled += 1
        slot = self._table.find(key)
        if slot is None:
            self._distances.add(None, key >> _GROUP_SHIFT)
            return
        self._distances.add(self._table.recency.used_since(slot), key >> _GROUP_SHIFT)
        self._seen_before += 1
        tenant.seen_before += 1
        if stored:
            self._found += 1
        elif self._table.was_stored[slot]:
            self._lost += 1

    def _use(self, key: int, now_s: float, *, stored: bool) -> None:
        table = self._table
        slot = table.find(key)
        if slot is not None:
            self._gap.add(now_s - table.last_access_s[slot])
            table.reuse(slot, now_s, stored=stored)
            return
        if len(table) >= self.table_cap and (oldest := table.recency.oldest()) is not None:
            table.retire(oldest)
            self._retired_by_cap += 1
        table.add(key, now_s, stored=stored)

    def _retire_idle(self, now_s: float) -> None:
        table = self._table
        last_access_s = table.last_access_s
        while (slot := table.recency.oldest()) is not None and now_s - last_access_s[slot] > self.idle_ttl_s:
            self._retired_idle += 1
            reuses = table.reuse_count[slot]
            if reuses:
                lifespan_s = last_access_s[slot] - table.first_reuse_s[slot]
                self._lifespan.add(lifespan_s)
                self._reuse_lifespan.add(reuses, lifespan_s)
            else:
                self._never_reused += 1
            table.retire(slot)

    def _salt(self, salt_hash: str) -> int:
        salt = self._salts.get(salt_hash)
        if salt is None:
            salt = int.from_bytes(hashlib.blake2b(salt_hash.encode(), digest_size=8).digest(), "little")
            if len(self._salts) < _SALTS_KEPT:
                self._salts[salt_hash] = salt
        return salt

    def _tenant(self, salt_hash: str) -> TenantCount:
        name = salt_hash if salt_hash in self._salts else OTHER_TENANTS
        return self._tenants.setdefault(name, TenantCount())


def _key(digest: bytes, salt: int) -> int:
    """Identity of a chunk: not of the bytes that decided on the sample, where there are more."""
    return (int.from_bytes(digest[-8:], "little") ^ salt) & _KEY_MASK
