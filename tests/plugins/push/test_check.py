from collections.abc import Callable

import pytest
from tests.memory_store import Options

from lmcache_core import CheckResult, PushedReport
from lmcache_plugins.push.check import PushedHealthCheck
from lmcache_plugins.push.settings import PushCheckSettings, PushSettings


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class View:
    """What `create` asks of a cache."""

    health_options = Options(fallback_policy="local_cpu")

    def __init__(self, settings: PushSettings | None) -> None:
        self._settings = settings

    def settings(self, table: str) -> PushSettings | None:
        return self._settings if table == "push" else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Callable[..., PushedHealthCheck]:
    def build(**settings: object) -> PushedHealthCheck:
        one = PushCheckSettings.model_validate({"name": "gpu-errors", "ttl_s": 60.0, **settings})
        return PushedHealthCheck(one, "recompute", clock)

    return build


Make = Callable[..., PushedHealthCheck]


def test_before_the_first_report_it_is_degraded(make: Make, clock: Clock) -> None:
    check = make()
    clock.now_s += 18

    assert check.check() == CheckResult(
        healthy=True, degraded=True, reason="no report yet; the first is due within 42 s"
    )


def test_without_any_report_it_fails_when_one_would_have_run_out(make: Make, clock: Clock) -> None:
    check = make()
    clock.now_s += 60

    assert check.check() == CheckResult(healthy=False, reason="no report since the start, 60 s ago")


def test_a_fresh_report_is_the_verdict(make: Make, clock: Clock) -> None:
    check = make()
    held_s = check.take_report(PushedReport(healthy=True, details={"errors": 0}))
    clock.now_s += 60

    assert held_s == 60.0
    assert check.check() == CheckResult(healthy=True, details={"errors": 0, "report_age_s": 60.0})


def test_a_report_of_a_failure_fails(make: Make) -> None:
    check = make()
    check.take_report(PushedReport(healthy=False, reason="3 errors"))

    assert check.check() == CheckResult(healthy=False, reason="3 errors", details={"report_age_s": 0.0})


def test_a_degraded_report_degrades(make: Make) -> None:
    check = make()
    check.take_report(PushedReport(healthy=True, degraded=True, reason="hot"))

    assert check.check() == CheckResult(healthy=True, degraded=True, reason="hot", details={"report_age_s": 0.0})


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (PushedReport(healthy=True), "healthy"),
        (PushedReport(healthy=False, reason="3 errors"), "not healthy: 3 errors"),
    ],
)
def test_a_report_that_has_run_out_fails(make: Make, clock: Clock, report: PushedReport, said: str) -> None:
    check = make()
    check.take_report(report)
    clock.now_s += 75

    assert check.check() == CheckResult(
        healthy=False,
        reason=f"the last report ({said}) is 75 s old and held for 60 s; is its sender alive?",
        details={"report_age_s": 75.0},
    )


def test_the_next_report_mends_it(make: Make, clock: Clock) -> None:
    check = make()
    clock.now_s += 600
    before = check.check().healthy
    check.take_report(PushedReport(healthy=True))

    assert (before, check.check().healthy) == (False, True)


@pytest.mark.parametrize(("ttl_s", "interval_s"), [(60.0, 1.0), (4.0, 1.0), (2.0, 0.5)])
def test_it_looks_often_enough_to_notice_the_end_of_a_report(make: Make, ttl_s: float, interval_s: float) -> None:
    assert make(ttl_s=ttl_s).interval == interval_s


def test_it_speaks_for_the_store_that_is_configured(make: Make) -> None:
    assert [make().get_bypass_backend_name(), make(backend="RemoteBackend").get_bypass_backend_name()] == [
        None,
        "RemoteBackend",
    ]


def test_there_is_one_check_for_each_entry_and_the_policy_is_its_own_or_the_configured_one() -> None:
    settings = PushSettings.model_validate(
        {"checks": [{"name": "a", "ttl_s": 1.0}, {"name": "b", "ttl_s": 1.0, "policy": "recompute"}]}
    )
    made = PushedHealthCheck.create(View(settings))  # type: ignore[arg-type]

    assert [(check.name(), check.fallback_policy) for check in made] == [("a", "local_cpu"), ("b", "recompute")]


def test_without_the_table_there_is_no_check() -> None:
    assert PushedHealthCheck.create(View(None)) == []  # type: ignore[arg-type]
