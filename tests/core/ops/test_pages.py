import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.core.health.tower import SteeredCheck

MakeSite = Callable[..., Any]
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def test_health_is_200_and_tells_everything_when_healthy(site: MakeSite) -> None:
    one = site(SteeredCheck(interval=3600.0))
    one.tower.start()
    answer = one.get("/health")
    (check,) = answer.json["checks"]

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert {key: answer.json[key] for key in ("healthy", "state", "reason", "bypassed", "plugins_failed")} == {
        "healthy": True,
        "state": "up",
        "reason": "",
        "bypassed": {},
        "plugins_failed": {},
    }
    assert (check["name"], check["state"], check["plugin"], check["policy"]) == ("steered", "up", "acme", "recompute")
    assert 0 <= check["age_s"] < 60
    assert 3000 < check["next_run_s"] <= 3600
    assert 0 <= check["since_s"] < 60


def test_health_is_503_and_says_why_when_not(site: MakeSite) -> None:
    one = site(SteeredCheck(run=lambda: False))
    one.tower.start()
    answer = one.get("/health")

    assert (answer.status, answer.json["reason"]) == (
        503,
        "check 'steered' fails: check() returned False; policy recompute",
    )


@pytest.mark.timing
def test_health_answers_within_a_second_while_a_check_hangs(site: MakeSite) -> None:
    release = threading.Event()
    one = site(SteeredCheck(run=lambda: release.wait(30), timeout=30.0))
    one.tower.monitor.start()
    started = time.perf_counter()
    status = one.get("/health").status
    elapsed_s = time.perf_counter() - started
    release.set()

    assert status == 503
    assert elapsed_s < 1.0


def test_health_shows_who_bypasses_what(site: MakeSite) -> None:
    one = site()
    one.tower.start()
    one.tower.storage.set_backend_bypass("RemoteBackend-0", True, owner="operator:alice")

    assert one.get("/health").json["bypassed"] == {"RemoteBackend-0": ["operator:alice"]}


@pytest.mark.parametrize("accept", ["", "*/*", PROMETHEUS, "application/openmetrics-text;version=1.0.0"])
def test_metrics_keep_the_documented_names_whatever_the_scraper_accepts(site: MakeSite, accept: str) -> None:
    """The documented name of a peer's gauge was not the exported one; and OpenMetrics drops the colon."""
    one = site(SteeredCheck())
    one.tower.start()
    answer = one.get("/metrics", accept=accept)
    names = {family.name for family in text_string_to_metric_families(answer.text)}

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert {
        "lmcache:is_healthy",
        "lmcache:remote_ping_latency",
        "lmcache:remote_ping_error_code",
        "lmcache:remote_ping_errors",
        "lmcache:remote_ping_successes",
        "lmcache:periodic_threads_total_count",
        "lmcache:periodic_threads_critical_active",
    } <= names


def test_metrics_is_healthy_follows(site: MakeSite) -> None:
    one = site(SteeredCheck())
    before = one.get("/metrics").text
    one.tower.start()
    after = one.get("/metrics").text

    assert "\nlmcache:is_healthy 0.0\n" in before
    assert "\nlmcache:is_healthy 1.0\n" in after


def test_periodic_threads_shows_the_monitor(site: MakeSite) -> None:
    one = site(SteeredCheck())
    one.tower.start()
    (status,) = one.get("/periodic-threads").json["threads"]

    assert (status["name"], status["level"], status["is_running"]) == ("health-monitor-thread", "critical", True)


def test_an_unknown_page_is_404(site: MakeSite) -> None:
    assert site().get("/nothing").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed_over_http(site: MakeSite, method: str) -> None:
    assert site().get("/health", method=method).status == 405


def test_the_documentation_names_every_page(site: MakeSite) -> None:
    text = (Path(__file__).parents[3] / "docs/reference/http.md").read_text()
    named = re.findall(r"^\| `(/[a-z/-]*)` \|", text, re.MULTILINE)

    assert sorted(named) == sorted([*site().pages.by_path(), "/health/overrides"])


def test_the_documentation_names_every_key(site: MakeSite) -> None:
    text = (Path(__file__).parents[3] / "docs/reference/http.md").read_text()
    one = site(SteeredCheck())
    one.tower.start()
    report, thread = one.get("/health").json, one.get("/periodic-threads").json["threads"][0]
    one.tower.storage.set_backend_bypass("RemoteBackend-0", True, owner="me")
    why, history = one.get("/health/why").json, one.get("/health/history").json
    backend = one.get("/health").json["backends"][0]
    keys = {*report, *report["checks"][0], *thread, *backend, *backend["breaker"], *backend["holds"][0]}
    keys |= {*why, *why["explanations"][1], *why["explanations"][1]["grounds"][0], *history, *history["transitions"][0]}

    assert {key for key in keys if f"`{key}`" not in text} == set()
