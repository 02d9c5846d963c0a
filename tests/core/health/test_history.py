import json
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.core.health.desk import WallClock
from tests.core.health.tower import SteeredCheck, Watchtower

from lmcache_core import BackendReport, CheckReport, HealthReport, HealthState
from lmcache_core.contracts.report import BreakerSummary, HoldReport
from lmcache_core.health.history import History
from lmcache_core.health.line_file import LineFile
from lmcache_core.metrics.families import CacheMetrics

CHECK = CheckReport(
    name="disk",
    plugin="acme",
    backend=None,
    state=HealthState.UP,
    reason="",
    policy="recompute",
    engaged=False,
    since_s=0.0,
    age_s=0.0,
    next_run_s=1.0,
)
BACKEND = BackendReport(name="R", url="memory://0", breaker=BreakerSummary(state="closed", since_s=0.0))


def report(
    state: HealthState = HealthState.UP, check: HealthState = HealthState.UP, *holds: HoldReport
) -> HealthReport:
    return HealthReport(
        healthy=state is not HealthState.DOWN,
        state=state,
        reason=f"it is {state.value}",
        since_s=0.0,
        checks=(replace(CHECK, state=check, reason=f"the disk is {check.value}"),),
        backends=(replace(BACKEND, holds=holds),),
    )


def history(**how: object) -> tuple[History, WallClock]:
    clock = WallClock()
    return History(CacheMetrics(), wall_clock=clock, **how), clock  # type: ignore[arg-type]


def changes(one: History) -> list[tuple[str, str, str, str]]:
    return [(each.kind, each.name, each.before, each.after) for each in one.latest()]


def test_what_stays_the_same_is_no_change() -> None:
    one, _ = history()
    for _ in range(3):
        one.observe(report())

    assert changes(one) == [("system", "", "", "up"), ("check", "disk", "", "up")]


def test_where_everything_starts_is_no_change() -> None:
    one, _ = history()
    one.observe(report(HealthState.UNKNOWN, HealthState.UNKNOWN))

    assert changes(one) == []


def test_a_change_says_from_what_to_what_why_and_how_long_it_had_lasted() -> None:
    one, clock = history()
    one.observe(report())
    clock.now_s += 42.0
    one.observe(report(HealthState.DEGRADED, HealthState.DOWN))
    system, check = one.latest(2)

    assert (system.before, system.after, system.reason, system.lasted_s) == ("up", "degraded", "it is degraded", 42.0)
    assert (check.before, check.after, check.reason, check.lasted_s) == ("up", "down", "the disk is down", 42.0)
    assert check.at_unix_s == clock.now_s


def test_holds_and_their_owners_are_noted() -> None:
    one, _ = history()
    one.observe(report())
    one.observe(
        report(HealthState.UP, HealthState.UP, HoldReport(owner="operator:a", reason="x", reads=True, writes=True))
    )
    (last,) = one.latest(1)

    assert (last.kind, last.name, last.before, last.after) == ("backend", "R", "in use", "left out")
    assert last.reason == "operator:a: x"


def test_a_breaker_starts_closed() -> None:
    one, _ = history()
    one.breaker_changed("R", state="open", reason="3 calls in a row failed")
    one.breaker_changed("R", state="half_open", reason="3 calls in a row failed")
    one.breaker_changed("R", state="closed", reason="3 calls in a row failed")

    assert changes(one) == [
        ("breaker", "R", "closed", "open"),
        ("breaker", "R", "open", "half-open"),
        ("breaker", "R", "half-open", "closed"),
    ]
    assert one.latest(1)[0].reason == ""


def test_the_last_ones_of_one_name_can_be_asked_for() -> None:
    one, _ = history()
    for state in ("open", "half_open", "closed"):
        one.breaker_changed("R", state=state, reason="")
        one.breaker_changed("S", state=state, reason="")

    assert [each.after for each in one.latest(2, name="R")] == ["half-open", "closed"]
    assert one.latest(0) == []
    assert one.latest(name="T") == []


def test_transitions_are_counted_by_what_became_what() -> None:
    metrics = CacheMetrics()
    one = History(metrics)
    one.observe(report())
    value = metrics.registry.get_sample_value(
        "lmcache:health_transitions_total", {"kind": "check", "name": "disk", "state": "up"}
    )

    assert value == 1


def test_each_is_a_line_of_the_file(tmp_path: Path) -> None:
    one, _ = history(file=LineFile(tmp_path / "history.jsonl"))
    one.observe(report())
    one.observe(report(HealthState.DOWN, HealthState.DOWN))
    one.close()
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]

    assert lines == [each.as_json() for each in one.latest()]
    assert [line["number"] for line in lines] == [1, 2, 3, 4]
    assert lines[0]["at"] == "2023-11-14T22:13:20.000Z"


def test_10_to_the_5_changes_leave_memory_flat() -> None:
    one, _ = history(limit=1000)
    reports = [report(), report(HealthState.DOWN, HealthState.DOWN)]

    def flap(times: int) -> None:
        for _ in range(times):
            one.observe(reports[0])
            one.observe(reports[1])

    flap(1_000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    flap(25_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert one.total >= 100_000
    assert len(one.latest()) == 1000
    assert grown < 1_000_000  # the thousand that are kept, counted anew since tracing began


def test_many_threads_number_without_a_gap() -> None:
    one, _ = history(limit=100_000)

    def flap(name: str) -> None:
        for number in range(500):
            one.breaker_changed(name, state="open" if number % 2 else "closed", reason="")

    threads = [threading.Thread(target=flap, args=(f"R{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [each.number for each in one.latest(100_000)] == list(range(1, one.total + 1))


def test_a_real_monitor_tells_it_everything(tower: Callable[..., Watchtower]) -> None:
    check = SteeredCheck(policy="local_cpu", backend="RemoteBackend-0")
    one, _ = history()
    watch = tower(check, on_change=one.observe)
    watch.start()
    check.run = lambda: False
    while not any(each.after == "left out" for each in one.latest()):
        check.await_run()
    check.run = lambda: True
    while not any(each.before == "left out" for each in one.latest()):
        check.await_run()

    assert [each[1:] for each in changes(one) if each[0] == "check"] == [
        ("steered", "unknown", "up"),
        ("steered", "up", "down"),
        ("steered", "down", "up"),
    ]
    assert [each[2:] for each in changes(one) if each[0] == "backend"] == [
        ("in use", "left out"),
        ("left out", "in use"),
    ]
