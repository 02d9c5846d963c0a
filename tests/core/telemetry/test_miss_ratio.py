"""The curve: exact where everything is sampled, within 0.02 of an exact LRU at one chunk of 64."""

import pytest
from bench.parts.reuse_traces import (
    Trace,
    conversation_trace,
    exact_distances,
    lru_miss_ratio,
    miss_ratios,
    with_digests,
    zipf_trace,
)
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core import ChunkReuseTracker
from lmcache_core.telemetry.miss_ratio import DistanceCounts, _bucket, _edges


def tracked(trace: Trace, rate: int) -> ChunkReuseTracker:
    tracker = ChunkReuseTracker(sample_rate=rate, table_cap=1 << 20, clock=lambda: 0.0)
    for digests in with_digests(trace):
        tracker.observe(digests, 0.0)
    return tracker


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True), min_size=1, max_size=60))
def test_a_full_sample_is_exact(trace: Trace) -> None:
    curve = tracked(trace, 1).curve()
    for size in (1, 2, 3, 5, 8, 13, 31):
        assert curve.miss_ratio(size).share == pytest.approx(lru_miss_ratio(trace, size))


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True), min_size=1, max_size=60))
def test_the_benchs_two_exact_caches_agree(trace: Trace) -> None:
    sizes = (1, 2, 3, 5, 8, 13, 31)
    assert list(miss_ratios(exact_distances(trace), sizes)) == pytest.approx(
        [lru_miss_ratio(trace, size) for size in sizes]
    )


@pytest.mark.parametrize("name", ["zipf", "conversations"])
def test_one_chunk_of_64_is_within_two_points_of_an_exact_lru(name: str) -> None:
    trace = zipf_trace(1_000_000, 100_000, 0.9) if name == "zipf" else conversation_trace(1_000_000)
    tracker = tracked(trace, 64)
    footprint = len({chunk for lookup in trace for chunk in lookup})
    sizes = [footprint * part // 8 for part in (1, 4)]
    errors = [abs(tracker.curve().miss_ratio(size).share - lru_miss_ratio(trace, size)) for size in sizes]
    assert max(errors) <= 0.02
    ideal = 1 - footprint / sum(map(len, trace))
    assert tracker.ideal_hit_rate().share == pytest.approx(ideal, abs=0.02)


def test_the_stated_error_covers_the_true_one() -> None:
    trace = conversation_trace(200_000)
    curve = tracked(trace, 64).curve()
    for size in (2_000, 5_000, 20_000, 60_000):
        estimate = curve.miss_ratio(size)
        assert abs(estimate.share - lru_miss_ratio(trace, size)) <= 3 * estimate.error


def test_the_curve_never_rises() -> None:
    curve = tracked(conversation_trace(50_000), 64).curve()
    shares = [curve.miss_ratio(size).share for size in range(1, 60_000, 500)]
    assert shares == sorted(shares, reverse=True)


def test_beyond_the_footprint_the_curve_is_flat() -> None:
    curve = tracked(conversation_trace(50_000), 8).curve()
    assert curve.miss_ratio(curve.footprint_chunks()).share == curve.best_miss_ratio().share


def test_what_the_sample_lacks_is_set_off_against_the_shortest_distance() -> None:
    """SHARDS-adj: 6400 accesses should show 100 in the sample; the 60 that are missing are hits of a hot chunk."""
    counts = DistanceCounts()
    for group in range(8):
        for _ in range(5):
            counts.add(None, group)
    curve = counts.curve(accesses=6_400, sample_rate=64)
    assert curve.miss_ratio(1).share == pytest.approx(0.4)


@given(st.integers(0, 1 << 31))
def test_a_distance_lies_in_its_bucket(distance: int) -> None:
    low, width = _edges(_bucket(distance))
    assert low <= distance < low + width
    assert width == 1 or width * 32 <= low


@given(st.integers(0, 5_000))
def test_buckets_leave_no_gap(bucket: int) -> None:
    low, width = _edges(bucket)
    assert _edges(bucket + 1)[0] == low + width
