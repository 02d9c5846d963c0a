"""Checks under another system's monitor."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Options

from lmcache_core import CheckResult, ConfigError, HealthCheck, HealthState, IrrecoverableException, PluginError
from lmcache_core.config.checks import CheckTable
from lmcache_core.health.hosted import HostedCheck, host_checks
from lmcache_core.registry.record import Declared


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def declared(create: Callable[[object], list[HealthCheck]], name: str = "Made", plugin: str = "acme") -> Declared:
    kind = type(name, (SteeredCheck,), {"create": classmethod(lambda _cls, view: create(view))})
    return Declared(plugin, f"{plugin} 1.0", kind)


def host(*checks: HealthCheck, clock: Callable[[], float] = time.monotonic, tables: tuple[CheckTable, ...] = ()):
    view: object = object()  # the checks look at nothing
    made = [declared(lambda _: list(checks))]
    return host_checks(made, view, options=Options(), tables=tables, limit_s=60, clock=clock)  # type: ignore[arg-type]


def host_one(check: HealthCheck, **how: object) -> HostedCheck:
    (hosted,), left_out = host(check, **how)  # type: ignore[arg-type]
    assert left_out == {}
    return hosted


def test_a_passing_check_is_healthy() -> None:
    verdict = host_one(SteeredCheck()).ask()

    assert (verdict.healthy, verdict.state, verdict.reason, verdict.error) == (True, HealthState.UP, "", None)


def test_a_failing_check_says_why() -> None:
    verdict = host_one(SteeredCheck(run=lambda: CheckResult(healthy=False, reason="refused"))).ask()

    assert (verdict.healthy, verdict.state, verdict.reason) == (False, HealthState.DOWN, "refused")


def test_what_it_raises_is_in_the_verdict() -> None:
    def refuse() -> bool:
        raise ConnectionError("refused")

    verdict = host_one(SteeredCheck(run=refuse)).ask()

    assert (verdict.healthy, verdict.reason, type(verdict.error)) == (
        False,
        "ConnectionError: refused",
        ConnectionError,
    )


def test_name_plugin_ladder_and_backend_are_the_checks() -> None:
    hosted = host_one(SteeredCheck("db", policy=("read_only", "local_cpu"), backend="RemoteBackend"))

    assert (hosted.name, hosted.plugin, hosted.ladder, hosted.backend) == (
        "db",
        "acme",
        ("read_only", "local_cpu"),
        "RemoteBackend",
    )


def test_it_does_not_run_before_its_interval_is_over() -> None:
    clock, check = Clock(), SteeredCheck(interval=10.0, jitter=0.0)
    hosted = host_one(check, clock=clock)
    hosted.ask()
    clock.now_s += 9.9
    early = (hosted.ask().healthy, check.runs)
    clock.now_s += 0.1

    assert (early, hosted.ask().healthy, check.runs) == ((True, 1), True, 2)


def test_rise_and_fall_hold() -> None:
    clock, answers = Clock(), iter([True, False, False, True, True])
    hosted = host_one(SteeredCheck(run=lambda: next(answers), rise=2, fall=2), clock=clock)
    healthy = []
    for _ in range(5):
        healthy.append(hosted.ask().healthy)
        clock.now_s += 1000.0

    assert healthy == [True, True, False, False, True]


def test_one_that_is_not_enforced_is_healthy_and_down() -> None:
    verdict = host_one(SteeredCheck(run=lambda: False, enforce=False)).ask()

    assert (verdict.healthy, verdict.state) == (True, HealthState.DOWN)


def test_the_configuration_wins() -> None:
    tables = (CheckTable(match="steer*", enforce=False),)

    assert host_one(SteeredCheck(run=lambda: False), tables=tables).ask().healthy


def test_one_that_skips_itself_is_healthy() -> None:
    verdict = host_one(SteeredCheck(run=lambda: False, skip=True)).ask()

    assert (verdict.healthy, verdict.state) == (True, HealthState.SKIPPED)


def test_one_that_can_never_pass_again_says_so_and_never_runs_again() -> None:
    def end() -> bool:
        raise IrrecoverableException("the licence is over")

    clock, check = Clock(), SteeredCheck(run=end)
    hosted = host_one(check, clock=clock)
    hosted.ask()
    clock.now_s += 1000.0
    verdict = hosted.ask()

    assert (verdict.irrecoverable, verdict.healthy, check.runs) == (True, False, 1)


@pytest.mark.timing
def test_one_that_hangs_is_failed_after_its_timeout_and_not_started_again() -> None:
    gate = threading.Event()
    check = SteeredCheck(run=gate.wait, timeout=0.05, interval=0.1)
    hosted = host_one(check)
    started = time.monotonic()
    first = hosted.ask()
    took_s = time.monotonic() - started
    again = hosted.ask()
    gate.set()

    assert (first.healthy, first.reason, again.healthy, check.runs) == (
        False,
        "no answer within 0.05 s",
        False,
        1,
    )
    assert took_s < 5.0


@pytest.mark.timing
def test_one_that_hung_passes_again_when_it_runs_again() -> None:
    gate = threading.Event()
    hosted = host_one(SteeredCheck(run=lambda: gate.wait() or True, timeout=0.05, interval=0.1))
    hosted.ask()
    gate.set()
    end = time.monotonic() + 10
    while not hosted.ask().healthy:
        assert time.monotonic() < end


def test_one_waits_while_another_that_it_depends_on_is_down() -> None:
    clock = Clock()
    network = SteeredCheck("a-network", run=lambda: False)
    database = SteeredCheck("database", run=lambda: False, depends_on=("a-network",))
    hosted, _ = host(network, database, clock=clock)
    verdicts = [one.ask() for one in hosted]

    assert [verdict.healthy for verdict in verdicts] == [False, True]
    assert (verdicts[1].reason, database.runs) == ("not run while check 'a-network' is down", 0)


def test_of_a_circle_the_last_is_left_out() -> None:
    checks, left_out = host(SteeredCheck("a", depends_on=("b",)), SteeredCheck("b", depends_on=("a",)))

    assert [check.name for check in checks] == ["a"]
    assert left_out == {
        "a check of plugin 'acme'": "health check 'b' depends on itself: 'b' -> 'a' -> 'b'; break it in depends_on"
    }


def test_a_circle_that_the_configuration_closes_is_refused() -> None:
    with pytest.raises(ConfigError, match="depend on each other in a circle"):
        host(
            SteeredCheck("a"), SteeredCheck("b", depends_on=("a",)), tables=(CheckTable(match="a", depends_on=("b",)),)
        )


def broken(_: object) -> list[HealthCheck]:
    raise KeyError("table")


def refusing(_: object) -> list[HealthCheck]:
    raise PluginError(plugin="acme", origin="acme 1.0", reason="needs more")


@pytest.mark.parametrize(
    ("create", "reason"),
    [(broken, "KeyError: 'table'"), (refusing, "plugin 'acme' (acme 1.0): needs more")],
)
def test_one_that_cannot_be_made_is_left_out_and_harms_no_other(create, reason) -> None:
    checks, left_out = host_checks(
        [declared(create, "Broken"), declared(lambda _: [SteeredCheck()])],
        object(),  # type: ignore[arg-type]
        options=Options(),
        tables=(),
        limit_s=60,
    )

    assert [check.name for check in checks] == ["steered"]
    assert left_out == {"Broken": reason}


def test_one_that_cannot_be_named_is_left_out() -> None:
    checks, left_out = host(SteeredCheck(""), SteeredCheck("whole"))

    assert [check.name for check in checks] == ["whole"]
    assert left_out == {
        "SteeredCheck": "health check SteeredCheck cannot be used: ValueError: name() must give a name, got ''"
    }


def test_the_second_of_a_name_is_left_out() -> None:
    checks, left_out = host(SteeredCheck("twin"), SteeredCheck("twin"))

    assert len(checks) == 1
    assert left_out == {"twin of plugin 'acme'": "plugin 'acme' has a check of that name"}


@pytest.mark.timing
def test_its_thread_ends_with_it() -> None:
    hosted = host_one(SteeredCheck("short-lived"))
    hosted.ask()
    del hosted
    gc.collect()
    end = time.monotonic() + 10
    while any("short-lived" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < end


def test_a_check_that_no_thread_can_run_has_failed_and_runs_when_there_is_one(monkeypatch) -> None:
    clock = Clock()
    hosted = host_one(SteeredCheck(), clock=clock)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        verdict = hosted.ask()
    assert (verdict.healthy, verdict.reason) == (False, "RuntimeError: can't start new thread")

    clock.now_s += 100.0
    assert hosted.ask().healthy
