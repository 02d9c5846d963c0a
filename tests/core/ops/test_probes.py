import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.core.health.tower import SteeredCheck

from lmcache_core import HealthReport
from lmcache_core.ops.probes import Probes

MakeSite = Callable[..., Any]
PROBES = ("/livez", "/readyz", "/startupz")


def fail() -> bool:
    return False


def test_livez_is_200_even_before_the_start_and_with_everything_down(site: MakeSite) -> None:
    one = site(SteeredCheck(run=fail))
    before = one.get("/livez")
    one.tower.start()
    after = one.get("/livez")

    assert [(answer.status, answer.text) for answer in (before, after)] == [(200, "ok\n")] * 2


def test_before_the_first_round_an_instance_is_alive_neither_ready_nor_started(site: MakeSite) -> None:
    one = site(SteeredCheck())

    assert [one.get(path).status for path in PROBES] == [200, 503, 503]


def test_readyz_says_why_not(site: MakeSite) -> None:
    assert site(SteeredCheck()).get("/readyz").json == {
        "ready": False,
        "readiness": "started",
        "healthy": False,
        "state": "unknown",
        "reason": "the health monitor has not started",
    }


def test_startupz_says_what_it_waits_for(site: MakeSite) -> None:
    release = threading.Event()
    one = site(SteeredCheck(run=lambda: release.wait(30), timeout=30.0))
    one.tower.monitor.start()
    answer = one.get("/startupz")
    release.set()

    assert (answer.status, answer.json) == (
        503,
        {"started": False, "reason": "the first round of checks waits for 'steered'"},
    )


def test_readyz_is_200_after_the_first_round_even_when_everything_is_recomputed(site: MakeSite) -> None:
    one = site(SteeredCheck(run=fail))
    one.tower.start()
    answer = one.get("/readyz")

    assert (answer.status, answer.json) == (
        200,
        {
            "ready": True,
            "readiness": "started",
            "healthy": False,
            "state": "down",
            "reason": "check 'steered' fails: check() returned False; policy recompute",
        },
    )


def test_readiness_healthy_is_503_while_everything_is_recomputed(site: MakeSite) -> None:
    one = site(SteeredCheck(run=fail), readiness="healthy")
    one.tower.start()

    assert [one.get(path).status for path in PROBES] == [200, 503, 200]


def test_readiness_healthy_comes_back(site: MakeSite) -> None:
    check = SteeredCheck(run=fail)
    one = site(check, readiness="healthy")
    one.tower.start()
    before = one.get("/readyz").status
    check.run = lambda: True
    one.tower.await_report(lambda report: report.healthy)

    assert (before, one.get("/readyz").status) == (503, 200)


def test_readiness_healthy_stays_200_under_a_policy_that_goes_on_serving(site: MakeSite) -> None:
    one = site(SteeredCheck(run=fail, policy="local_cpu", backend="RemoteBackend-0"), readiness="healthy")
    one.tower.start()
    answer = one.get("/readyz")

    assert (answer.status, answer.json["state"]) == (200, "degraded")


@pytest.mark.parametrize("readiness", ["started", "healthy"])
def test_an_instance_that_stops_is_alive_and_started_but_not_ready(site: MakeSite, readiness: str) -> None:
    one = site(SteeredCheck(), readiness=readiness)
    one.tower.start()
    one.tower.monitor.stop()

    assert [one.get(path).status for path in PROBES] == [200, 503, 200]


def test_after_a_failed_initialisation_it_is_ready_to_recompute(site: MakeSite) -> None:
    one = site(init_failed_reason="MemoryError: no room")
    one.tower.monitor.start()

    assert [one.get(path).status for path in PROBES] == [200, 200, 200]


def test_after_a_failed_initialisation_readiness_healthy_is_never_ready(site: MakeSite) -> None:
    one = site(init_failed_reason="MemoryError: no room", readiness="healthy")
    one.tower.monitor.start()

    assert [one.get(path).status for path in PROBES] == [200, 503, 200]


def test_every_probe_answers_head_requests(site: MakeSite) -> None:
    one = site()
    one.tower.start()

    assert [one.get(path, method="HEAD").status for path in PROBES] == [200, 200, 200]


def test_readyz_judges_by_the_report_that_it_shows(site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health may turn between two looks: a page that is ready and not healthy helps nobody."""
    monitor = site(SteeredCheck()).tower.start().monitor
    well = monitor.report()
    given = iter([replace(well, healthy=False, reason="it is down"), well])
    monkeypatch.setattr(monitor, "report", lambda: next(given))
    page = json.loads(Probes(monitor, "healthy").readyz(None).body)

    assert (page["ready"], page["healthy"]) == (False, False)


def test_startupz_never_says_no_without_a_reason(site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round may end while it is asked what that waits for."""
    monitor = site(SteeredCheck()).tower.monitor

    def ends_meanwhile() -> HealthReport:
        monitor._first_round.set()
        return replace(report, healthy=True, reason="")

    report = monitor.report()
    monkeypatch.setattr(monitor, "report", ends_meanwhile)
    page = Probes(monitor).startupz(None)

    assert (page.status, json.loads(page.body)) == (200, {"started": True, "reason": ""})
