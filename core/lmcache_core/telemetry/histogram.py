"""Counts by upper bound, with an overflow bucket."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

OVERFLOW = "+Inf"
"""Name of the bucket above the last bound."""


def bound_name(bound: float) -> str:
    """Write an upper bound as histograms do on the wire: ``60``, ``0.5``, ``+Inf``."""
    return OVERFLOW if math.isinf(bound) else f"{bound:.15g}"


class Histogram:
    """Counts values by upper bound: a value is in the first bucket whose bound it does not exceed.

    Args:
        bounds: Rising, finite; the overflow bucket is added.
    """

    __slots__ = ("_bounds", "counts")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self.counts = [0] * (len(self._bounds) + 1)

    def bucket(self, value: float) -> int:
        """Give the index of the bucket a value belongs to."""
        return bisect_left(self._bounds, value)

    def add(self, value: float, count: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += count

    def to_dict(self) -> dict[str, int]:
        """Give every bucket, empty ones too, by the name of its upper bound."""
        names = [*map(bound_name, self._bounds), OVERFLOW]
        return dict(zip(names, self.counts, strict=True))


class Histogram2D:
    """Counts pairs of values by two upper bounds.

    Args:
        rows: Bounds of the first value, as in `Histogram`.
        columns: Bounds of the second value.
    """

    __slots__ = ("_columns", "_rows", "counts")

    def __init__(self, rows: Sequence[float], columns: Sequence[float]) -> None:
        self._rows = (*rows, math.inf)
        self._columns = (*columns, math.inf)
        self.counts: dict[tuple[int, int], int] = {}

    def add(self, row: float, column: float, count: int = 1) -> None:
        """Count a pair."""
        cell = (bisect_left(self._rows, row), bisect_left(self._columns, column))
        self.counts[cell] = self.counts.get(cell, 0) + count

    def to_dict(self) -> dict[str, int]:
        """Give the cells that are not empty, by ``<row bound>|<column bound>``, in rising order."""
        return {
            f"{bound_name(self._rows[row])}|{bound_name(self._columns[column])}": self.counts[row, column]
            for row, column in sorted(self.counts)
        }
