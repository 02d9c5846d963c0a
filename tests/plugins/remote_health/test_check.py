import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.memory_store import Gate, MemoryStore, Rig, refuse

from lmcache_core import BackendFullError, BackendTimeoutError, CheckResult, HealthCheck
from lmcache_plugins.remote_health.check import RemoteBackendHealthCheck

MakeBench = Callable[..., Any]


def test_a_store_that_works_is_healthy_with_evidence(bench: MakeBench) -> None:
    result = bench().check.check()

    assert result.healthy
    assert not result.degraded
    assert result.details["ping_code"] == 0
    assert result.details["ping_ms"] >= 0
    assert result.details["round_trip"] is True
    assert result.details["load_failures"] == 0


def test_a_store_that_refuses_the_ping_is_not(bench: MakeBench) -> None:
    one = bench()
    one.store.fault = refuse("ping")

    assert one.check.check() == CheckResult(
        healthy=False, reason="store refused", details={"load_failures": 0, "ping_code": -2}
    )


@pytest.mark.timing
def test_a_frozen_store_is_reported_in_about_the_ping_timeout(bench: MakeBench) -> None:
    one = bench(ping_timeout=0.2)
    one.store.fault = Gate("ping", "store", "load", "delete")
    started = time.perf_counter()
    result = one.check.check()
    elapsed_s = time.perf_counter() - started

    assert result.reason == "RemoteBackend-0 (memory://0): ping gave no answer before its deadline"
    assert result.details["ping_code"] == -1
    assert 0.2 <= elapsed_s < 0.4


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (None, 0),
        (refuse("ping", error=BackendTimeoutError("late")), -1),
        (refuse("ping"), -2),
        (refuse("ping", error=TimeoutError("a plugin's own")), -2),
    ],
)
def test_the_code_gauge_keeps_its_value_until_the_next_ping(
    bench: MakeBench, fault: Callable[[str], None] | None, code: int
) -> None:
    """A peer's gauge went back to 0 between pings, and showed a timeout as -2 on one Python."""
    one = bench()
    one.store.fault = fault or (lambda _call: None)
    one.check.check()
    shown = [one.rig.sample("remote_ping_error_code", backend="RemoteBackend-0") for _ in range(3)]

    assert shown == [code] * 3
    assert one.rig.sample("remote_ping_latency", backend="RemoteBackend-0") > 0


def test_pings_are_counted(bench: MakeBench) -> None:
    one = bench()
    one.check.check()
    one.store.fault = refuse("ping")
    one.check.check()
    one.check.check()

    assert one.rig.sample("remote_ping_successes_total", backend="RemoteBackend-0") == 1
    assert one.rig.sample("remote_ping_errors_total", backend="RemoteBackend-0") == 2


@pytest.mark.parametrize("call", ["store", "load", "delete"])
def test_a_store_that_answers_pings_but_not_calls_is_not_healthy(bench: MakeBench, call: str) -> None:
    one = bench()
    one.store.fault = refuse(call)

    assert one.check.check().reason == "store refused"


def test_a_round_trip_that_hangs_ends_at_the_ping_timeout(bench: MakeBench) -> None:
    one = bench(ping_timeout=0.1)
    one.store.fault = Gate("load")

    assert one.check.check().reason == "RemoteBackend-0 (memory://0): load gave no answer before its deadline"


def test_the_check_allows_itself_time_for_every_step(bench: MakeBench) -> None:
    assert bench(ping_timeout=2.0).check.timeout >= 5 * 2.0


def test_interval_policy_and_backend_are_the_stores_own(bench: MakeBench) -> None:
    check = bench(ping_interval=7.0, fallback_policy="local_cpu").check

    assert (check.interval, check.fallback_policy, check.get_bypass_backend_name()) == (
        7.0,
        "local_cpu",
        "RemoteBackend-0",
    )


# -- a store that is full -------------------------------------------------------------------------------------------


def test_a_full_store_is_degraded_not_down(bench: MakeBench) -> None:
    one = bench()
    one.store.fault = refuse("store", error=BackendFullError("no room"))
    result = one.check.check()

    assert (result.healthy, result.degraded, result.reason) == (True, True, "takes no writes, reads go on: no room")


def test_a_full_store_that_cannot_be_read_is_down(bench: MakeBench) -> None:
    one = bench()

    def fault(call: str) -> None:
        refuse("store", error=BackendFullError("no room"))(call)
        refuse("load")(call)

    one.store.fault = fault

    assert one.check.check().reason == "store refused"


# -- load failures of live traffic ----------------------------------------------------------------------------------


def test_failed_loads_that_reach_the_threshold_fail_it(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(10)
    result = one.check.check()

    assert result.reason == (
        "10 loads failed within 30 s (get_blocking_failed_threshold 10); a recovery is tried in 300 s"
    )


def test_fewer_failed_loads_do_not(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(9)

    assert one.check.check().healthy


def test_failed_loads_count_within_one_interval_only(bench: MakeBench) -> None:
    one = bench()
    verdicts = []
    for _ in range(20):
        one.now_s += 30.0
        one.fail_loads(9)
        verdicts.append(one.check.check().healthy)

    assert all(verdicts)


def test_a_monitor_woken_by_every_failure_still_sees_the_threshold(bench: MakeBench) -> None:
    """Counting since the last run would see one failure each time."""
    one = bench()
    verdicts = []
    for _ in range(10):
        one.fail_loads(1)
        verdicts.append(one.check.check().healthy)
        one.now_s += 0.1

    assert verdicts == [True] * 9 + [False]


def test_misses_are_no_failures(bench: MakeBench) -> None:
    """A peer counts an evicted chunk as a failed load."""
    one = bench(get_blocking_failed_threshold=1)
    run = SimpleNamespace(found=one.tier.count_present([one.check._probe._key], deadline=time.monotonic() + 5))

    assert run.found == 0
    assert one.check.check().healthy


def test_during_the_waiting_time_it_stays_failed_but_is_pinged(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(10)
    one.check.check()
    one.now_s += 299.0
    result = one.check.check()

    assert result.reason.endswith("a recovery is tried in 1 s")
    assert result.details["recovery_in_s"] == 1.0
    assert one.rig.sample("remote_ping_successes_total", backend="RemoteBackend-0") == 2
    assert one.store.frames == {}


def test_exactly_at_the_waiting_time_it_still_waits(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(10)
    one.check.check()
    one.now_s += 300.0

    assert not one.check.check().healthy


def test_after_the_waiting_time_a_round_trip_recovers_it(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(10)
    one.check.check()
    one.now_s += 300.1

    assert one.check.check().healthy


def test_after_the_waiting_time_a_failing_round_trip_does_not(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(10)
    one.check.check()
    one.store.fault = refuse("load")
    one.now_s += 301.0
    failed = one.check.check()
    one.store.fault = lambda _call: None
    one.now_s += 30.0

    assert failed.reason == "store refused"
    assert one.check.check().healthy


def test_failures_before_the_recovery_do_not_trip_it_again(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(15)
    one.check.check()
    one.fail_loads(9)
    one.now_s += 301.0
    one.check.check()
    one.fail_loads(9)
    one.now_s += 30.0

    assert one.check.check().healthy


def test_further_failures_restart_the_waiting_time(bench: MakeBench) -> None:
    one = bench()
    one.fail_loads(10)
    one.check.check()
    one.now_s += 290.0
    one.fail_loads(10)
    one.check.check()
    one.now_s += 20.0

    assert not one.check.check().healthy


# -- which checks there are -----------------------------------------------------------------------------------------


def checks_of(rig: Rig) -> list[HealthCheck]:
    return RemoteBackendHealthCheck.create(SimpleNamespace(tiers=rig.tiers))  # type: ignore[arg-type]


def test_there_is_one_check_for_each_store() -> None:
    rig = Rig(stores=[MemoryStore(), MemoryStore()])
    names = [check.name() for check in checks_of(rig)]
    rig.close()

    assert names == ["RemoteBackendHealthCheck(memory://0)", "RemoteBackendHealthCheck(memory://1)"]


def test_two_stores_of_one_address_are_told_apart() -> None:
    rig = Rig(stores=[MemoryStore(), MemoryStore()])
    for tier in rig.tiers:
        tier.url = "memory://same"
    names = [check.name() for check in checks_of(rig)]
    rig.close()

    assert names == [
        "RemoteBackendHealthCheck(memory://same, RemoteBackend-0)",
        "RemoteBackendHealthCheck(memory://same, RemoteBackend-1)",
    ]


def test_without_a_store_there_is_no_check() -> None:
    rig = Rig(stores=[])
    checks = checks_of(rig)
    rig.close()

    assert checks == []


def test_notices_of_the_store_are_shown_and_degrade_nothing(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    monkeypatch.setattr(one.store, "notices", lambda: ["evicts nothing", "is small"], raising=False)
    result = one.check.check()

    assert (result.healthy, result.degraded, result.reason) == (True, False, "evicts nothing; is small")
    assert result.details["notices"] == "evicts nothing; is small"


def test_a_store_whose_notices_raise_has_none(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()

    def fail() -> None:
        raise ValueError("no idea")

    monkeypatch.setattr(one.store, "notices", fail, raising=False)

    assert one.check.check().reason == ""


def test_chunks_refused_for_lack_of_room_degrade_writes(bench: MakeBench) -> None:
    """The probe's 4 KiB may fit where a chunk does not."""
    one = bench()
    permit = one.tier.admit()
    for _ in range(3):
        one.tier._write_failed(permit, BackendFullError("no room"))
    result = one.check.check()
    one.now_s += 31.0
    one.check.check()
    one.now_s += 31.0

    assert (result.healthy, result.degraded) == (True, True)
    assert result.reason == "takes no writes, reads go on: 3 stores had no room within 30 s"
    assert result.details["refused_writes"] == 3
    assert not one.check.check().degraded


def test_it_has_the_stores_own_ladder(bench: MakeBench) -> None:
    check = bench(fallback_policy=("read_only", "bypass"), policy_ladder_secs=7.0).check

    assert (check.fallback_policy, check.policy_ladder_secs) == (("read_only", "bypass"), 7.0)
