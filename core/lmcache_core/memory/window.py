"""Where a large block fits among small ones at the least loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

FREE = -1
"""Rank of what is free already."""


class Piece(NamedTuple):
    """Some bytes of the arena that are free or can be freed.

    Attributes:
        offset: Of the first byte.
        size_bytes: How many.
        rank: Place of the chunk in the order in which chunks should go; `FREE` for none.
        digest: Of the chunk; empty for none.
    """

    offset: int
    size_bytes: int
    rank: int
    digest: bytes


def coldest_window(pieces: Sequence[Piece], need_bytes: int) -> list[bytes]:
    """Choose chunks that make room for one block when they go: neighbours, the last used of them as old as can be.

    One pass. Less than the need and one piece more is given up.

    Args:
        pieces: By address; none overlap.
        need_bytes: In one stretch.

    Returns:
        Their digests; empty where there is no such stretch.
    """
    best: range | None = None
    best_rank = FREE
    first = total_bytes = end = 0
    youngest: deque[int] = deque()  # places of pieces, their ranks falling: the head is the window's maximum
    for place, (offset, size_bytes, rank, _) in enumerate(pieces):
        if offset != end:
            first, total_bytes = place, 0
            youngest.clear()
        end = offset + size_bytes
        total_bytes += size_bytes
        while youngest and pieces[youngest[-1]].rank <= rank:
            youngest.pop()
        youngest.append(place)
        while total_bytes - pieces[first].size_bytes >= need_bytes:
            total_bytes -= pieces[first].size_bytes
            if youngest[0] == first:
                youngest.popleft()
            first += 1
        if total_bytes >= need_bytes and (best is None or pieces[youngest[0]].rank < best_rank):
            best, best_rank = range(first, place + 1), pieces[youngest[0]].rank
    return [pieces[place].digest for place in best or () if pieces[place].digest]
