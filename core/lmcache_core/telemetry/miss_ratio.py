"""How often a cache of any size would miss, from a sample of its chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_GROUPS = 8
_EXACT = 64
"""Distances below are counted one by one."""

_STEPS = 32
"""Buckets for each doubling above; a bucket is at most 1/32 of its distance wide."""

_SHIFT = _STEPS.bit_length() - 1
_FIRST_OCTAVE = _EXACT.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, and how far it may be off.

    Attributes:
        share: 0 to 1.
        error: Standard error; about two estimates of three are off by less. NaN when not known.
    """

    share: float
    error: float


class DistanceCounts:
    """Counts the stack distances of sampled accesses, in eight groups of chunks.

    The stack distance of an access is the number of other chunks used since the chunk's last use. An
    LRU cache of C chunks hits when it is below C. Sampled distances are stored as they are; the
    curve scales them. The groups tell how much the estimate depends on which chunks are in the
    sample. Not thread-safe.
    """

    __slots__ = ("_buckets", "sampled")

    def __init__(self) -> None:
        self.sampled = [0] * _GROUPS
        self._buckets: dict[int, list[int]] = {}

    def add(self, distance: int | None, group: int) -> None:
        """Count an access.

        Args:
            distance: In sampled chunks; None for the first access to a chunk.
            group: Any whole number that depends on the chunk alone.
        """
        group %= _GROUPS
        self.sampled[group] += 1
        if distance is None:
            return
        bucket = _bucket(distance)
        counts = self._buckets.get(bucket)
        if counts is None:
            counts = self._buckets[bucket] = [0] * _GROUPS
        counts[group] += 1

    def curve(self, *, accesses: int, sample_rate: int, horizon_chunks: float = math.inf) -> MissRatioCurve:
        """Make the curve of what was counted so far.

        Args:
            accesses: All accesses, those to chunks outside the sample included.
            sample_rate: One chunk of how many is sampled.
            horizon_chunks: Size beyond which nothing is known.
        """
        return MissRatioCurve(
            accesses=accesses,
            sample_rate=sample_rate,
            horizon_chunks=horizon_chunks,
            sampled=tuple(self.sampled),
            buckets={bucket: tuple(self._buckets[bucket]) for bucket in sorted(self._buckets)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissRatioCurve:
    """Miss ratio of an LRU cache over its size, as SHARDS estimates it at a fixed rate.

    Chunks are sampled by their digest, so a distance among sampled chunks is one in `sample_rate` of
    the true distance. SHARDS-adj: the number of accesses is known exactly; what the sample has too
    many or too few is set off against the shortest distance, as it comes from a few hot chunks.

    C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad: Efficient MRC Construction with SHARDS, FAST '15.

    Attributes:
        accesses: All accesses.
        sample_rate: One chunk of how many is sampled.
        horizon_chunks: Size beyond which nothing is known, as the table had no room for more.
        sampled: Sampled accesses of each group of chunks.
        buckets: Distance bucket to accesses of each group.
    """

    accesses: int
    sample_rate: int
    horizon_chunks: float
    sampled: tuple[int, ...]
    buckets: Mapping[int, Sequence[int]]

    def miss_ratio(self, chunks: float) -> Estimate:
        """Estimate which share of accesses a cache of this size misses; NaN before the first access."""
        hits = [0.0] * len(self.sampled)
        for bucket, counts in self.buckets.items():
            low, width = _edges(bucket)
            part = (chunks - low * self.sample_rate) / (width * self.sample_rate)
            if part <= 0:
                continue
            for group, count in enumerate(counts):
                hits[group] += count * min(1.0, part)
        return self._estimate(hits)

    def best_miss_ratio(self) -> Estimate:
        """Estimate the share that a cache without limits misses: the first accesses."""
        return self._estimate([float(sum(counts)) for counts in zip(*self.buckets.values(), strict=True)])

    def footprint_chunks(self) -> float:
        """Size from which on the curve is flat."""
        if not self.buckets:
            return 0.0
        low, width = _edges(max(self.buckets))
        return float((low + width) * self.sample_rate)

    def _estimate(self, hits: Sequence[float]) -> Estimate:
        if not self.accesses:
            return Estimate(math.nan, math.nan)
        groups = len(self.sampled)
        expected = self.accesses / self.sample_rate / groups
        missed = [
            1.0 - (hit + expected - sampled) / expected
            for hit, sampled in zip(hits or [0.0] * groups, self.sampled, strict=True)
        ]
        mean = sum(missed) / groups
        spread = sum((value - mean) ** 2 for value in missed) / (groups - 1)
        error = math.sqrt(spread / groups) if self.sample_rate > 1 else 0.0
        return Estimate(min(1.0, max(0.0, mean)), error)


def _bucket(distance: int) -> int:
    if distance < _EXACT:
        return distance
    octave = distance.bit_length() - 1
    return _EXACT + (octave - _FIRST_OCTAVE) * _STEPS + (distance >> (octave - _SHIFT)) - _STEPS


def _edges(bucket: int) -> tuple[int, int]:
    """Give the lowest distance of a bucket and how many distances it has."""
    if bucket < _EXACT:
        return bucket, 1
    octave, step = divmod(bucket - _EXACT, _STEPS)
    width = 1 << (octave + _FIRST_OCTAVE - _SHIFT)
    return (_STEPS + step) * width, width
