"""A tracked chunk costs at most 200 bytes, everything counted."""

import tracemalloc

import pytest

from lmcache_core import ChunkReuseTracker


@pytest.mark.parametrize("chunks", [5_000, 21_850])
def test_a_tracked_chunk_costs_at_most_200_bytes(chunks: int) -> None:
    """21850 is just above a size at which a dict of CPython doubles."""
    digests = [number.to_bytes(8, "little") * 4 for number in range(chunks)]
    tracemalloc.start()
    try:
        tracker = ChunkReuseTracker(sample_rate=1, table_cap=chunks, clock=lambda: 0.0)
        for start in range(0, chunks, 64):
            tracker.observe(digests[start : start + 64], 0.0)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tracker.tracked == chunks
    assert held_bytes / chunks <= 200


def test_a_full_table_grows_no_more() -> None:
    tracker = ChunkReuseTracker(sample_rate=1, table_cap=2_000, clock=lambda: 0.0)
    tracker.observe([number.to_bytes(8, "little") for number in range(4_000)], 0.0)
    tracemalloc.start()
    try:
        for number in range(4_000, 12_000):
            tracker.observe([number.to_bytes(8, "little")], 0.0)
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tracker.tracked == 2_000
    assert grown_bytes < 2_000 * 200
