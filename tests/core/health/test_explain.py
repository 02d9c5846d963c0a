from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core import BackendReport, CheckReport, HealthReport, HealthState
from lmcache_core.contracts.report import BreakerSummary, FailureReport, HoldReport, PingReport
from lmcache_core.health.explain import Explanation, Ground, explain, explanations_as_json

CHECK = CheckReport(
    name="ping",
    plugin="acme",
    backend="R",
    state=HealthState.UP,
    reason="",
    policy="local_cpu",
    engaged=False,
    since_s=5.0,
    age_s=2.0,
    next_run_s=3.0,
    rule="fails after one failing run",
)
BACKEND = BackendReport(
    name="R", url="memory://0", breaker=BreakerSummary(state="closed", since_s=9.0, rule="opens at the first timeout")
)
REPORT = HealthReport(healthy=True, state=HealthState.UP, reason="", since_s=7.0, checks=(CHECK,), backends=(BACKEND,))
OPERATOR = HoldReport(owner="operator:alice", reason="kernel update", reads=True, writes=True, left_s=90.0)
POLICY = HoldReport(owner="check:ping", reason="check ping fails", reads=True, writes=True)


def backend(checks: tuple[CheckReport, ...] = (CHECK,), healthy: bool = True, **how: Any) -> Explanation:
    report = replace(REPORT, checks=checks, healthy=healthy, backends=(replace(BACKEND, **how),))
    return explain(report, "R")[0]


def ground(explanation: Explanation, subject: str) -> Ground:
    return next(one for one in explanation.grounds if one.subject == subject)


def steps(one: Ground) -> list[tuple[str, float | None]]:
    return [(step.what, step.in_s) for step in one.steps]


def test_the_system_comes_first_then_each_backend_in_order() -> None:
    report = replace(REPORT, backends=(BACKEND, replace(BACKEND, name="S")))

    assert [one.name for one in explain(report)] == ["", "R", "S"]


def test_one_backend_can_be_asked_for() -> None:
    assert [one.name for one in explain(REPORT, "R")] == ["R"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("RR", "backend 'RR' is not there; did you mean 'R'"),
        ("other", "backend 'other' is not there; known: R"),
    ],
)
def test_a_backend_that_is_not_there_is_a_lookup_error(name: str, sentence: str) -> None:
    with pytest.raises(LookupError) as caught:
        explain(REPORT, name)

    assert caught.value.args == (sentence,)


def test_the_gate_says_whether_the_cache_serves_and_why() -> None:
    down = replace(REPORT, healthy=False, state=HealthState.DOWN, reason="check 'ping' fails: gone; policy recompute")
    open_gate, closed = (explain(report)[0] for report in (REPORT, down))

    assert (open_gate.traffic, open_gate.grounds[0].state) == ("serves", "open")
    assert (closed.traffic, closed.grounds[0].state) == ("recomputes everything", "closed")
    assert closed.grounds[0].evidence == ("check 'ping' fails: gone; policy recompute",)
    assert steps(closed.grounds[0]) == [("opens when the reasons are gone", None)]


def test_a_check_without_a_backend_speaks_for_the_system() -> None:
    system, _ = explain(replace(REPORT, checks=(replace(CHECK, name="threads", backend=None), CHECK)))

    assert [one.subject for one in system.grounds] == ["gate", "check 'threads'"]


def test_a_plugin_that_did_not_load_is_explained() -> None:
    system, _ = explain(replace(REPORT, plugins_failed={"theirs": "no module"}))

    assert ground(system, "plugin 'theirs'").evidence == ("no module",)


# -- state of a backend -------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ({}, "up"),
        ({"holds": (OPERATOR,)}, "maintenance"),
        ({"holds": (replace(OPERATOR, writes=False),)}, "degraded"),
        (
            {"holds": (replace(OPERATOR, writes=False), replace(OPERATOR, owner="operator:bob", reads=False))},
            "maintenance",
        ),
        ({"holds": (POLICY,)}, "degraded"),
        ({"breaker": BreakerSummary(state="open", since_s=1.0)}, "down"),
        ({"breaker": BreakerSummary(state="half_open", since_s=1.0)}, "degraded"),
        ({"breaker": BreakerSummary(state="ramp", since_s=1.0, share=0.4)}, "degraded"),
        ({"checks": (replace(CHECK, state=HealthState.DOWN),)}, "down"),
        ({"checks": (replace(CHECK, state=HealthState.DEGRADED),)}, "degraded"),
        ({"checks": (replace(CHECK, state=HealthState.UNKNOWN),)}, "unknown"),
        ({"checks": (replace(CHECK, state=HealthState.SKIPPED),)}, "up"),
        ({"checks": ()}, "up"),
    ],
)
def test_the_worst_decides_and_operators_before_all(how: dict[str, Any], state: str) -> None:
    assert backend(**how).state == state


@pytest.mark.parametrize(
    ("how", "traffic"),
    [
        ({}, "reads and writes"),
        ({"holds": (OPERATOR,)}, "nothing"),
        ({"holds": (replace(OPERATOR, writes=False),)}, "writes only"),
        ({"holds": (replace(OPERATOR, reads=False),)}, "reads only"),
        ({"holds": (replace(OPERATOR, reads=False, writes=False, draining=True),)}, "reads only"),
        ({"breaker": BreakerSummary(state="open", since_s=1.0)}, "nothing"),
        ({"breaker": BreakerSummary(state="half_open", since_s=1.0)}, "one trial call at a time"),
        ({"breaker": BreakerSummary(state="ramp", since_s=1.0, share=0.42)}, "reads and writes, 42% of it"),
        ({"healthy": False}, "nothing, as everything is recomputed"),
    ],
)
def test_it_says_what_a_backend_gets(how: dict[str, Any], traffic: str) -> None:
    assert backend(**how).traffic == traffic


def test_the_reason_names_owners_breaker_and_checks_once() -> None:
    one = backend(
        checks=(replace(CHECK, state=HealthState.DOWN, reason="R (memory://0): ping gave no answer"),),
        holds=(POLICY, OPERATOR),
        breaker=BreakerSummary(state="half_open", since_s=1.0, reason="3 calls in a row failed"),
    )

    assert one.reason == (
        "operator:alice: kernel update; breaker half-open: 3 calls in a row failed; ping gave no answer"
    )


# -- grounds --------------------------------------------------------------------------


def test_a_check_shows_evidence_rule_since_when_and_its_next_run() -> None:
    details = {"ping_ms": 0.25, "ping_code": -1, "ok": False, "none": None}
    failing = replace(CHECK, state=HealthState.DOWN, reason="no answer", fails=3, engaged=True, details=details)
    one = ground(backend(checks=(failing,)), "check 'ping'")

    assert one.evidence == (
        "no answer",
        "failed 3 times in a row",
        "last verdict 2.0 s ago",
        "ping_ms 0.25",
        "ping_code -1",
        "ok false",
        "none none",
        "policy local_cpu is engaged",
    )
    assert (one.state, one.since_s, one.rule) == ("down", 5.0, "fails after one failing run")
    assert steps(one) == [("next run", 3.0)]


def test_a_countdown_of_a_check_is_what_happens_next_and_has_aged() -> None:
    waiting = replace(CHECK, details={"recovery_in_s": 40.0, "load_failures": 12}, age_s=2.5)
    one = ground(backend(checks=(waiting,)), "check 'ping'")

    assert steps(one) == [("recovery", 37.5), ("next run", 3.0)]
    assert "recovery_in_s" not in " ".join(one.evidence)


def test_an_open_breaker_shows_why_and_when_the_next_trial_comes() -> None:
    breaker = BreakerSummary(
        state="open", since_s=4.0, reason="3 calls in a row failed", next_trial_s=1.5, opened=2, rule="the rule"
    )
    one = ground(
        backend(
            breaker=breaker,
            load_failures=7,
            last_failure=FailureReport(call="load", reason="R (memory://0): refused", age_s=4.2),
            last_ping=PingReport(code=-1, latency_ms=500.0, age_s=1.0),
            waiting_chunks=3,
        ),
        "breaker",
    )

    assert one.evidence == (
        "opened 2 times, last because 3 calls in a row failed",
        "failed loads since start: 7",
        "last failure, a load, 4.2 s ago: refused",
        "last ping got no answer in time (code -1) after 500.0 ms, 1.0 s ago",
        "3 chunks wait to be written",
    )
    assert (one.state, one.since_s, one.rule) == ("open", 4.0, "the rule")
    assert steps(one) == [("a trial call", 1.5)]


@pytest.mark.parametrize(
    ("breaker", "step"),
    [
        (BreakerSummary(state="open", since_s=4.0), "the next call that reaches it is a trial"),
        (BreakerSummary(state="half_open", since_s=4.0), "the next call that reaches it is a trial"),
        (BreakerSummary(state="ramp", since_s=4.0, share=0.4), "more than 40% of the traffic, then all of it"),
    ],
)
def test_a_breaker_on_its_way_back_says_what_is_next(breaker: BreakerSummary, step: str) -> None:
    assert steps(ground(backend(breaker=breaker), "breaker")) == [(step, None)]


def test_calls_in_the_window_and_pings_are_evidence() -> None:
    breaker = BreakerSummary(state="closed", since_s=1.0, bad_calls=2, calls=40)
    passed = ground(backend(breaker=breaker, last_ping=PingReport(code=0, latency_ms=0.4, age_s=3.0)), "breaker")
    failed = ground(backend(last_ping=PingReport(code=-2, latency_ms=0.4, age_s=3.0)), "breaker")

    assert "2 of the last 40 calls failed or were slow" in passed.evidence
    assert "last ping answered after 0.4 ms, 3.0 s ago" in passed.evidence
    assert "last ping failed (code -2) after 0.4 ms, 3.0 s ago" in failed.evidence


def test_an_override_says_who_why_and_when_it_ends() -> None:
    one = ground(backend(holds=(OPERATOR,)), "operator:alice")

    assert one.evidence == ("reason: kernel update",)
    assert (one.state, steps(one)) == ("leaves out reads and writes", [("expires", 90.0)])


def test_a_policys_hold_ends_with_its_check() -> None:
    assert steps(ground(backend(holds=(POLICY,)), "check:ping")) == [("the check runs again", 3.0)]


def test_a_hold_of_somebody_else_ends_by_its_owner() -> None:
    stranger = HoldReport(owner="cron", reason="", reads=True, writes=False)
    one = ground(backend(holds=(stranger,)), "cron")

    assert (one.state, one.evidence, steps(one)) == ("leaves out reads", (), [("ends by its owner alone", None)])


def test_what_decides_stands_first() -> None:
    failing = replace(CHECK, name="worse", state=HealthState.DOWN)
    subjects = [one.subject for one in backend(checks=(CHECK, failing), holds=(POLICY, OPERATOR)).grounds]

    assert subjects == ["operator:alice", "breaker", "check 'worse'", "check 'ping'", "check:ping"]


# -- JSON -----------------------------------------------------------------------------


def test_as_json_it_is_what_the_page_shows() -> None:
    document = explanations_as_json(REPORT, explain(REPORT, "R"))

    assert (document["healthy"], document["state"], document["since_s"]) == (True, "up", 7.0)
    assert document["explanations"][0]["grounds"][1] == {
        "subject": "check 'ping'",
        "state": "up",
        "since_s": 5.0,
        "evidence": ["last verdict 2.0 s ago"],
        "rule": "fails after one failing run",
        "next": [{"what": "next run", "in_s": 3.0}],
    }


@given(
    st.sampled_from(list(HealthState)),
    st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)),
    st.none() | st.floats(0, 1e9),
)
def test_whatever_a_check_found_can_be_shown(state: HealthState, details: dict[str, Any], age_s: float | None) -> None:
    import json

    report = replace(REPORT, checks=(replace(CHECK, state=state, details=details, age_s=age_s),))

    assert json.dumps(explanations_as_json(report, explain(report)), allow_nan=False)
