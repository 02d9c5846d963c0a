"""The tracker: its sample, its table, its counts."""

import math
from hashlib import sha256

import pytest

from lmcache_core import ChunkReuseTracker, KeyNamespace
from lmcache_core.contracts.key import hash_salt
from lmcache_core.telemetry.reuse_totals import reuse_classes
from lmcache_core.tokens.hashing import chunk_digests, token_array

DAY_S = 86_400.0


def digest(number: int) -> bytes:
    """A digest that is in the sample at every rate that divides 2 ** 20."""
    return (number << 20).to_bytes(8, "little") + sha256(number.to_bytes(8, "little")).digest()[8:]


def tracker(**options: float) -> ChunkReuseTracker:
    return ChunkReuseTracker(clock=lambda: 0.0, **options)


def seen(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


# -- the sample ---------------------------------------------------------------


@pytest.mark.parametrize("rate", [1, 2, 3, 64, 100, 256, 1000, 4096])
def test_the_sample_is_what_the_first_eight_bytes_say(rate: int) -> None:
    digests = chunk_digests(token_array(range(20_000)), 1, b"seed")
    expected = sum(int.from_bytes(one[:8], "little") % rate == 0 for one in digests)
    one = tracker(sample_rate=rate)

    one.observe(digests)

    assert (one.totals().accesses, one.totals().sampled) == (20_000, expected)


def test_the_rate_is_one_of_64() -> None:
    assert ChunkReuseTracker().sample_rate == 64


def test_two_trackers_choose_the_same_chunks() -> None:
    digests = chunk_digests(token_array(range(5_000)), 1, b"seed")
    one, other = tracker(), tracker()
    one.observe(digests)
    for number in range(0, 5_000, 10):
        other.observe(digests[number : number + 10])
    assert one.tracked == other.tracked > 0


@pytest.mark.parametrize("options", [{"sample_rate": 0}, {"table_cap": 0}, {"idle_ttl_s": 0.0}])
def test_a_bound_below_its_least_value_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="sample_rate and table_cap must be at least 1 and idle_ttl_s above 0"):
        tracker(**options)


# -- reuse --------------------------------------------------------------------


def test_the_second_access_is_a_reuse() -> None:
    one = tracker()
    one.observe([digest(1), digest(2)], 0.0)
    one.observe([digest(1)], 1.0)
    assert (one.totals().sampled, one.totals().seen_before) == (3, 1)


def test_ideal_hit_rate_is_the_share_seen_before() -> None:
    one = tracker(sample_rate=1)
    for _ in range(4):
        one.observe([digest(1), digest(2)])
    assert one.ideal_hit_rate().share == 0.75


def test_ideal_hit_rate_before_the_first_access_is_unknown() -> None:
    assert math.isnan(tracker().ideal_hit_rate().share)


def test_a_hot_chunk_in_the_sample_does_not_lift_the_ideal_hit_rate() -> None:
    one = tracker(sample_rate=64)
    outside = [bytes([1]) + number.to_bytes(31, "little") for number in range(64 * 100)]
    inside = [digest(number) for number in range(100)]
    for number in range(100):  # every chunk is new but the one hot chunk
        one.observe([digest(0), inside[number], *outside[64 * number : 64 * number + 63]])
    assert one.totals().seen_before / one.totals().sampled > 0.49
    assert one.ideal_hit_rate().share == pytest.approx(1 - 100 * 64 / 6500)


def test_gap_is_between_two_accesses() -> None:
    one = tracker()
    for now_s in (0.0, 2.0, 3600.0):
        one.observe([digest(1)], now_s)
    assert seen(dict(one.totals().gap)) == {"4": 1, "3600": 1}


def test_a_chunk_that_the_cache_held_and_no_longer_has_is_lost() -> None:
    one = tracker()
    one.observe([digest(1), digest(2)])
    one.observe([digest(1), digest(2)], found=1)
    one.observe([digest(1), digest(2)], found=0)
    totals = one.totals()
    assert (totals.served, totals.found, totals.lost) == (1, 1, 1)


def test_time_never_goes_back() -> None:
    one = tracker()
    one.observe([digest(1)], 100.0)
    one.observe([digest(1)], 50.0)
    assert one.observed_s == 100.0
    assert seen(dict(one.totals().gap)) == {"1": 1}


def test_the_injected_clock_tells_the_time_where_the_call_does_not() -> None:
    times = iter([0.0, 10.0, 70.0])
    one = ChunkReuseTracker(clock=lambda: next(times))
    one.observe([digest(1)])
    one.observe([digest(1)])
    assert seen(dict(one.totals().gap)) == {"60": 1}


def test_twice_the_same_chunk_in_one_lookup_is_one_access_to_it() -> None:
    one = tracker()
    one.observe([digest(1), digest(1)])
    assert (one.tracked, one.totals().seen_before) == (1, 0)


# -- tenants ------------------------------------------------------------------


def test_equal_prompts_of_two_tenants_are_no_reuse() -> None:
    """D.20: LMCache's event has no salt, so another tenant's prompt looks like reuse."""
    one = tracker(sample_rate=1)
    tokens = token_array(range(64))
    for salt in ("ours", "theirs"):
        namespace = KeyNamespace(
            model_name="m",
            world_size=1,
            rank=0,
            dtype="float32",
            layout="l",
            chunk_tokens=16,
            salt_hash=hash_salt(salt),
        )
        one.observe(chunk_digests(tokens, 16, namespace.seed), salt_hash=namespace.salt_hash)
    assert (one.totals().sampled, one.totals().seen_before) == (8, 0)


def test_digests_without_a_salt_inside_are_kept_apart_too() -> None:
    one = tracker()
    one.observe([digest(1)], salt_hash="a")
    one.observe([digest(1)], salt_hash="b")
    one.observe([digest(1)], salt_hash="b")
    assert [(tenant.sampled, tenant.seen_before) for tenant in one.tenants] == [(1, 0), (2, 1)]


def test_tenants_beyond_the_first_64_share_one_count() -> None:
    one = tracker()
    for number in range(100):
        one.observe([digest(1)], salt_hash=f"tenant {number}")
    assert len(one.tenants) == 65
    assert one.tenants[-1].sampled == 36
    assert one.tracked == 100


# -- retirement ---------------------------------------------------------------


def test_a_chunk_idle_for_three_days_is_retired_and_new_when_it_comes_back() -> None:
    one = tracker()
    one.observe([digest(1)], 0.0)
    one.observe([digest(2)], 3 * DAY_S)
    assert one.totals().retired_idle == 0
    one.observe([digest(1)], 3 * DAY_S + 1)
    assert (one.totals().retired_idle, one.totals().never_reused, one.totals().seen_before) == (1, 1, 0)


def test_lifespan_is_last_access_minus_first_reuse() -> None:
    one = tracker(idle_ttl_s=100.0)
    for now_s in (0.0, 90.0, 100.0, 140.0):  # first seen, first reuse, ..., last access
        one.observe([digest(1)], now_s)
    one.expire(1000.0)
    assert seen(dict(one.totals().lifespan)) == {"60": 1}
    assert dict(one.totals().reuse_lifespan) == {"4|60": 1}


def test_a_lifespan_beyond_a_month_is_in_the_overflow() -> None:
    one = tracker()
    for day in range(36):
        one.observe([digest(1)], day * DAY_S)
    one.expire(60 * DAY_S)
    assert dict(one.totals().reuse_lifespan) == {"64|+Inf": 1}


def test_chunks_that_a_full_table_retires_are_counted_apart() -> None:
    one = tracker(table_cap=2)
    one.observe([digest(1)], 0.0)
    one.observe([digest(1)], 1.0)
    one.observe([digest(2)], 2.0)
    one.observe([digest(3)], 3.0)
    totals = one.totals()
    assert (one.tracked, totals.retired_by_cap, totals.retired_idle) == (2, 1, 0)
    assert seen(dict(totals.lifespan)) == {}


def test_a_full_table_ends_the_curve() -> None:
    one = tracker(table_cap=2)
    for number in range(3):
        one.observe([digest(number)])
    assert one.curve().horizon_chunks == 2 * 64


def test_living_chunks_are_told_without_retiring_them() -> None:
    one = tracker()
    one.observe([digest(1), digest(2)], 0.0)
    for now_s in (5.0, 7.0, 15.0):
        one.observe([digest(1)], now_s)
    assert one.living() == (1, {"4|15": 1})
    assert one.tracked == 2


def test_horizon_is_short_after_a_start() -> None:
    one = tracker()
    one.expire(3600.0)
    assert one.horizon_s == 3600.0
    one.expire(30 * DAY_S)
    assert one.horizon_s == 3 * DAY_S


# -- totals -------------------------------------------------------------------


def test_an_interval_is_what_came_since() -> None:
    one = tracker(idle_ttl_s=10.0)
    one.observe([digest(1)], 0.0)
    one.observe([digest(1)], 1.0)
    earlier = one.totals()
    one.observe([digest(2)], 20.0)
    interval = one.totals().since(earlier)
    assert (interval.accesses, interval.seen_before, interval.retired_idle) == (1, 0, 1)
    assert set(interval.gap.values()) == {0}
    assert dict(interval.reuse_lifespan) == {"1|1": 1}


def test_classes_are_burst_daily_and_shared_prefix() -> None:
    cells = {"512|3600": 1, "2|14400": 2, "32|+Inf": 4, "64|14400": 8, "+Inf|+Inf": 16}
    assert reuse_classes(cells) == {"burst": 1, "daily": 6, "shared_prefix": 24}
