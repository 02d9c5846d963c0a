import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.health.tower import SteeredCheck, Watchtower, state_of

from lmcache_core import CheckResult, HealthCheck, HealthState, PushedReport, PushHealthCheck
from lmcache_core.ops.access import AccessToken
from lmcache_core.ops.action import Action
from lmcache_core.ops.push import PushDesk, parse_report

MakeSite = Callable[..., Any]
TOKEN = "correct horse battery"
REFUSED = [
    (b"", "the body must be JSON, and is none from character 0 on"),
    (b"{", "the body must be JSON, and is none from character 1 on"),
    (b"\xff", "the body must be JSON in UTF-8"),
    (b"null", 'the body must be a JSON object such as {"healthy": true}, got null'),
    (b"true", 'the body must be a JSON object such as {"healthy": true}, got true or false'),
    (b"[true]", 'the body must be a JSON object such as {"healthy": true}, got a list'),
    (b"{}", "key 'healthy' is missing; it must be true or false"),
    (b'{"health": true}', "unknown key 'health'; did you mean 'healthy'?"),
    (b'{"healthy": true, "zz": 1}', "unknown key 'zz'; known: healthy, reason, degraded, details"),
    (b'{"healthy": 1}', "key 'healthy' must be true or false, got a number"),
    (b'{"healthy": "true"}', "key 'healthy' must be true or false, got text"),
    (b'{"healthy": true, "degraded": "yes"}', "key 'degraded' must be true or false, got text"),
    (
        b'{"healthy": false, "degraded": true, "reason": "x"}',
        "key 'degraded' is true, so 'healthy' must be true as well: degraded works with a reservation",
    ),
    (
        b'{"healthy": false}',
        "key 'reason' is missing; a report that is not healthy must say why, in one sentence",
    ),
    (b'{"healthy": true, "reason": 3}', "key 'reason' must be text, got a number"),
    (b'{"healthy": true, "reason": "\\u0007"}', "key 'reason' has characters that cannot be printed; leave them out"),
    (
        json.dumps({"healthy": True, "reason": "x" * 501}).encode(),
        "key 'reason' must have 500 characters at most, got 501",
    ),
    (b'{"healthy": true, "details": []}', "key 'details' must be an object, got a list"),
    (
        b'{"healthy": true, "details": {"a": [1]}}',
        "detail 'a' must be text, a number, true, false or null, got a list",
    ),
    (b'{"healthy": true, "details": {"a": NaN}}', "the body must be JSON, which has no NaN"),
    (b'{"healthy": true, "details": {"a": 1e999}}', "detail 'a' is too large a number"),
    (
        json.dumps({"healthy": True, "details": {"a": "x" * 201}}).encode(),
        "detail 'a' must have 200 characters at most, got 201",
    ),
    (
        json.dumps({"healthy": True, "details": {"x" * 65: 1}}).encode(),
        "a key of 'details' must have 64 characters at most, got 65",
    ),
    (
        json.dumps({"healthy": True, "details": {str(number): 1 for number in range(33)}}).encode(),
        "key 'details' must have 32 entries at most, got 33",
    ),
]


class Inbox(PushHealthCheck):
    """Passes as the last report says."""

    def __init__(self, name: str = "gpu-errors") -> None:
        self._name = name
        self.reports: list[PushedReport] = []

    def name(self) -> str:
        return self._name

    def take_report(self, report: PushedReport) -> float:
        self.reports.append(report)
        return 60.0

    def check(self) -> CheckResult:
        if not self.reports:
            return CheckResult(healthy=True)
        last = self.reports[-1]
        return CheckResult(healthy=last.healthy, reason=last.reason, degraded=last.degraded, details=last.details)

    @classmethod
    def create(cls, manager: object) -> list[HealthCheck]:
        return []

    @property
    def interval(self) -> float:
        return 3600.0


def desk(tower: Watchtower) -> list[Action]:
    return PushDesk(tower.monitor, AccessToken(TOKEN)).actions()


def report(one: Any, name: str, body: object = b'{"healthy": true}', token: str = TOKEN) -> Any:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return one.get(f"/health/checks/{name}/report", "POST", sent, **headers)


def test_a_report_is_taken_and_says_how_long_it_holds(site: MakeSite) -> None:
    inbox = Inbox()
    answer = report(site(inbox, actions=desk), "gpu-errors", {"healthy": True, "details": {"errors": 0}})

    assert (answer.status, answer.json) == (200, {"check": "gpu-errors", "healthy": True, "valid_s": 60.0})
    assert inbox.reports == [PushedReport(healthy=True, details={"errors": 0})]


def test_a_report_of_a_failure_is_judged_at_once_not_at_the_next_interval(site: MakeSite) -> None:
    one = site(Inbox(), actions=desk)
    one.tower.start()
    report(one, "gpu-errors", {"healthy": False, "reason": "3 uncorrectable errors"})
    found = one.tower.await_report(lambda found: state_of(found, "gpu-errors") is HealthState.DOWN)

    assert found.reason == "check 'gpu-errors' fails: 3 uncorrectable errors; policy recompute"


def test_a_degraded_report_degrades(site: MakeSite) -> None:
    one = site(Inbox(), actions=desk)
    one.tower.start()
    report(one, "gpu-errors", {"healthy": True, "degraded": True, "reason": "hot"})
    found = one.tower.await_report(lambda found: state_of(found, "gpu-errors") is HealthState.DEGRADED)

    assert found.healthy


def test_a_report_that_says_nothing_new_wakes_nobody(site: MakeSite) -> None:
    other = SteeredCheck(interval=3600.0)
    one = site(Inbox(), other, actions=desk)
    one.tower.start()
    for _ in range(20):
        report(one, "gpu-errors")

    assert other.runs == 1


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (
            "",
            "a token is needed: send 'Authorization: Bearer <token>' with internal_api_server_token, or what its token file holds",
        ),
        ("wrong", "the token is wrong: send internal_api_server_token of this instance, or what its token file holds"),
    ],
)
def test_without_the_token_nothing_is_taken(site: MakeSite, token: str, sentence: str) -> None:
    inbox = Inbox()
    answer = report(site(inbox, actions=desk), "gpu-errors", token=token)

    assert (answer.status, answer.json["error"], answer.headers["www-authenticate"]) == (401, sentence, "Bearer")
    assert inbox.reports == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gpu-error", "no check 'gpu-error' takes reports; did you mean 'gpu-errors'?"),
        ("zz", "no check 'zz' takes reports; known: gpu-errors"),
    ],
)
def test_an_unknown_name_is_404_with_the_nearest(site: MakeSite, name: str, sentence: str) -> None:
    answer = report(site(Inbox(), actions=desk), name)

    assert (answer.status, answer.json["error"]) == (404, sentence)


def test_where_no_check_takes_reports_the_sentence_says_where_to_declare_one(site: MakeSite) -> None:
    answer = report(site(actions=desk), "gpu-errors")

    assert (answer.status, answer.json["error"]) == (
        404,
        "no check takes reports; declare 'gpu-errors' in [[extra_config.push.checks]]",
    )


def test_a_check_that_runs_by_itself_takes_no_reports(site: MakeSite) -> None:
    answer = report(site(SteeredCheck(), actions=desk), "steered")

    assert (answer.status, answer.json["error"]) == (409, "check 'steered' runs by itself and takes no reports")


def test_a_malformed_report_is_400_and_nothing_is_taken(site: MakeSite) -> None:
    inbox = Inbox()
    answer = report(site(inbox, actions=desk), "gpu-errors", {"healthy": "yes"})

    assert (answer.status, answer.json["error"]) == (
        400,
        "report for check 'gpu-errors': key 'healthy' must be true or false, got text",
    )
    assert inbox.reports == []


def test_a_long_body_is_413(site: MakeSite) -> None:
    answer = report(site(Inbox(), actions=desk), "gpu-errors", b" " * 8193)

    assert (answer.status, answer.json["error"]) == (413, "the body has more than 8192 bytes")


def test_reports_are_posted(site: MakeSite) -> None:
    assert site(Inbox(), actions=desk).get("/health/checks/gpu-errors/report").status == 405


@pytest.mark.parametrize(("body", "sentence"), REFUSED)
def test_what_is_wrong_with_a_report_is_said(body: bytes, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_report(body)

    assert str(caught.value) == sentence


def test_deep_nesting_is_refused_like_everything_else() -> None:
    """How deep is too deep depends on the interpreter."""
    with pytest.raises(ValueError) as caught:
        parse_report(b"[" * 8192)

    assert str(caught.value).startswith("the body must be JSON, and is n")


def test_a_reason_comes_onto_one_line() -> None:
    body = json.dumps({"healthy": False, "reason": " a\n b\tc  "}).encode()

    assert parse_report(body).reason == "a b c"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.binary(max_size=64) | st.dictionaries(st.sampled_from(["healthy", "reason", "degraded", "details", "x"]), JSON)
)
def test_anything_is_a_report_or_one_sentence(sent: Any) -> None:
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    try:
        found = parse_report(body)
    except ValueError as error:
        lines = str(error).splitlines()
    else:
        lines = [json.dumps(dict(found.details), allow_nan=False)]
        assert found.reason.isprintable()
    assert len(lines) == 1
