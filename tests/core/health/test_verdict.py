import dataclasses
import json

from lmcache_core import CheckReport, HealthReport, HealthState
from lmcache_core.health.verdict import Verdict, age_check, judge_checks, report_as_json

CHECK = CheckReport(
    name="disk",
    plugin="acme",
    backend=None,
    state=HealthState.UP,
    reason="",
    policy="recompute",
    engaged=False,
    since_s=5.0,
    age_s=1.0,
    next_run_s=4.0,
)


def a_check(**changes: object) -> CheckReport:
    return dataclasses.replace(CHECK, **changes)  # type: ignore[arg-type]


def judge(*checks: CheckReport, blocking: tuple[str, ...] = (), **how: dict[str, object]) -> Verdict:
    return judge_checks(checks, blocking=blocking, **{"bypassed": {}, "plugins_failed": {}, **how})  # type: ignore[arg-type]


def test_no_check_is_up() -> None:
    assert judge() == Verdict(healthy=True, state=HealthState.UP)


def test_a_blocking_check_is_down_and_named() -> None:
    check = a_check(state=HealthState.DOWN, reason="full", engaged=True)

    assert judge(check, blocking=("disk",)) == Verdict(
        healthy=False, state=HealthState.DOWN, reason="check 'disk' fails: full; policy recompute"
    )


def test_a_check_that_fails_beside_its_policy_is_a_reservation() -> None:
    check = a_check(state=HealthState.DOWN, reason="gone", policy="local_cpu", engaged=True)

    assert judge(check) == Verdict(
        healthy=True, state=HealthState.DEGRADED, reason="check 'disk' fails: gone; policy local_cpu"
    )


def test_a_degraded_check_is_a_reservation() -> None:
    assert judge(a_check(state=HealthState.DEGRADED, reason="slow")).reason == "check 'disk' is degraded: slow"


def test_a_skipped_check_is_no_reservation() -> None:
    assert judge(a_check(state=HealthState.SKIPPED)) == Verdict(healthy=True, state=HealthState.UP)


def test_a_bypass_names_its_owners() -> None:
    assert judge(bypassed={"RemoteBackend": ("alice", "check:disk")}) == Verdict(
        healthy=True,
        state=HealthState.DEGRADED,
        reason="backend 'RemoteBackend' is bypassed by alice, check:disk",
    )


def test_a_plugin_that_did_not_load_is_a_reservation() -> None:
    assert judge(plugins_failed={"theirs": "no module named x"}) == Verdict(
        healthy=True, state=HealthState.DEGRADED, reason="plugin 'theirs' failed: no module named x"
    )


def test_a_verdict_ages() -> None:
    aged = age_check(CHECK, 2.0, 30.0)

    assert (aged.age_s, aged.since_s, aged.next_run_s, aged.state) == (3.0, 7.0, 2.0, HealthState.UP)


def test_an_old_verdict_reads_unknown() -> None:
    aged = age_check(CHECK, 30.0, 30.0)

    assert (aged.state, aged.reason) == (HealthState.UNKNOWN, "the last verdict (up) is 31 s old")


def test_json_takes_whatever_a_check_gave_as_details() -> None:
    details = {"nan": float("nan"), "inf": float("inf"), "n": 1, "b": True, "none": None, "object": object(), 3: "x"}
    report = HealthReport(
        healthy=True,
        state=HealthState.UP,
        reason="",
        since_s=1.0,
        checks=(a_check(details=details),),
        bypassed={"RemoteBackend": ("alice",)},
        plugins_failed={"theirs": "why"},
    )

    assert json.loads(json.dumps(report_as_json(report), allow_nan=False)) == {
        "healthy": True,
        "state": "up",
        "reason": "",
        "since_s": 1.0,
        "checks": [
            {
                "name": "disk",
                "plugin": "acme",
                "backend": None,
                "state": "up",
                "reason": "",
                "policy": "recompute",
                "engaged": False,
                "ladder": [],
                "enforced": True,
                "group": "",
                "since_s": 5.0,
                "age_s": 1.0,
                "next_run_s": 4.0,
                "details": {
                    "nan": None,
                    "inf": None,
                    "n": 1,
                    "b": True,
                    "none": None,
                    "object": "object",
                    "3": "x",
                },
                "rule": "",
                "passes": 0,
                "fails": 0,
            }
        ],
        "bypassed": {"RemoteBackend": ["alice"]},
        "plugins_failed": {"theirs": "why"},
        "backends": [],
    }
