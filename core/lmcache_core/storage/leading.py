"""What a store says of how many leading chunks it has, which a broken one may say wrong."""

from __future__ import annotations

import operator
from typing import SupportsIndex


def leading(count: SupportsIndex, keys: int) -> int:
    """Give a count of leading keys.

    Args:
        count: As `StorageBackend.contains` gave it.
        keys: How many it was asked for.

    Raises:
        TypeError: It is no number.
        ValueError: It cannot be true; says so.
    """
    number = operator.index(count)
    if not 0 <= number <= keys:
        raise ValueError(f"gave {number} for {keys} keys; give how many of the leading ones are there")
    return number
