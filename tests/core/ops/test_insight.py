import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.core.health.tower import SteeredCheck

MakeSite = Callable[..., Any]


def failing() -> SteeredCheck:
    return SteeredCheck(run=lambda: False, policy="local_cpu", backend="RemoteBackend-0", interval=3600.0)


def start(one: Any) -> None:
    """Start the monitor, and wait until the history has the check's change: it is noted after the report is out."""
    one.tower.start()
    end_s = time.monotonic() + 10.0
    while not one.get("/health/history?name=steered").json["transitions"]:
        assert time.monotonic() < end_s, "no change was noted"


def test_why_explains_the_system_and_each_backend_with_the_report(site: MakeSite) -> None:
    one = site(failing())
    one.tower.start()
    answer = one.get("/health/why")
    system, backend = answer.json["explanations"]

    assert (answer.status, answer.json["state"], answer.json["healthy"]) == (200, "degraded", True)
    assert (system["name"], system["traffic"]) == ("", "serves")
    assert (backend["name"], backend["state"], backend["traffic"]) == ("RemoteBackend-0", "down", "nothing")
    assert [ground["subject"] for ground in backend["grounds"]] == ["breaker", "check 'steered'", "check:steered"]
    assert answer.json["report"]["checks"][0]["name"] == "steered"


def test_why_is_200_whatever_it_says(site: MakeSite) -> None:
    one = site(SteeredCheck(run=lambda: False))
    one.tower.start()

    assert (one.get("/health").status, one.get("/health/why").status) == (503, 200)


def test_why_of_one_backend(site: MakeSite) -> None:
    one = site()
    one.tower.start()

    assert [each["name"] for each in one.get("/health/why?backend=RemoteBackend-0").json["explanations"]] == [
        "RemoteBackend-0"
    ]


def test_why_of_a_backend_that_is_not_there_says_which_is_near(site: MakeSite) -> None:
    answer = site().get("/health/why?backend=RemoteBackend")

    assert (answer.status, answer.json) == (
        404,
        {"error": "backend 'RemoteBackend' is not there; did you mean 'RemoteBackend-0'"},
    )


def test_history_is_the_last_changes_oldest_first(site: MakeSite) -> None:
    one = site(failing())
    start(one)
    document = one.get("/health/history").json

    assert document["total"] == len(document["transitions"])
    assert [each["number"] for each in document["transitions"]] == sorted(
        each["number"] for each in document["transitions"]
    )
    assert ("check", "steered", "unknown", "down") in [
        (each["kind"], each["name"], each["before"], each["after"]) for each in document["transitions"]
    ]


def test_history_can_be_cut_and_chosen(site: MakeSite) -> None:
    one = site(failing())
    start(one)

    assert len(one.get("/health/history?limit=1").json["transitions"]) == 1
    assert {each["name"] for each in one.get("/health/history?name=steered").json["transitions"]} == {"steered"}


@pytest.mark.parametrize("limit", ["-1", "x", "", "1e3", "%C2%B2"])
def test_a_limit_that_is_no_number_is_400(site: MakeSite, limit: str) -> None:
    assert site().get(f"/health/history?limit={limit}").status == 400


def test_a_huge_limit_is_no_more_than_is_kept(site: MakeSite) -> None:
    assert site().get(f"/health/history?limit={'9' * 400}").status == 200
