"""Every alert asks for what the cache exports, and has a runbook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from lmcache_core import HealthReport, HealthState
from lmcache_core.cli.main import lmcachectl
from lmcache_core.events.bus import EventBus
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.metrics.health import HealthCollector
from lmcache_core.metrics.server import ServerCollector, ServerTally
from lmcache_core.metrics.threads import PeriodicThreadCollector
from lmcache_core.threads import PeriodicThreadRegistry

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "examples/deploy/prometheus/lmcache-alerts.yaml"
UNIT_TESTS = ROOT / "examples/deploy/prometheus/lmcache-alerts-test.yaml"
RUNBOOKS = ROOT / "docs/runbooks"
SERIES = re.compile(r"(?P<name>lmcache:\w+)(?:\{(?P<labels>[^}]*)\})?")
MATCHER = re.compile(r"(\w+)\s*[=!]~?\s*\"")
ROW = re.compile(r"^\| (?P<names>`lmcache:[^|]*) \| (?P<kind>\w+) \|\s*(?P<labels>[^|]*?)\s*\|", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
OF_PROMETHEUS = {"instance", "job"}


class QuietMonitor:
    """All that a scrape needs of a monitor."""

    def report(self) -> HealthReport:
        return HealthReport(healthy=True, state=HealthState.UP, reason="", since_s=0.0)


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Names as Prometheus stores them."""
    metrics = CacheMetrics()
    metrics.registry.register(PeriodicThreadCollector(PeriodicThreadRegistry()))
    metrics.registry.register(HealthCollector(QuietMonitor()))
    metrics.registry.register(ServerCollector(ServerTally()))
    EventBus(metrics)  # it shows its own families there
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for family in metrics.registry.collect()
    }


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """Labels of each series, from the metrics page, which has a test of its own."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    return {
        f"{name}_total" if row["kind"] == "counter" else name: set(QUOTED.findall(row["labels"]))
        for row in ROW.finditer(page)
        for name in QUOTED.findall(row["names"])
    }


def names_in(expression: str) -> set[str]:
    return {match["name"] for match in SERIES.finditer(expression)}


def test_there_are_alerts(alerts: list[dict[str, Any]]) -> None:
    names = [alert["alert"] for alert in alerts]

    assert len(names) == len(set(names)) == 20


def test_every_series_is_exported(alert: dict[str, Any], exported: set[str]) -> None:
    assert names_in(alert["expr"])
    assert names_in(alert["expr"]) - exported == set()


def test_every_label_that_is_matched_is_there(alert: dict[str, Any], labels: dict[str, set[str]]) -> None:
    wrong = [
        (match["name"], label)
        for match in SERIES.finditer(alert["expr"])
        for label in MATCHER.findall(match["labels"] or "")
        if label not in labels[match["name"]]
    ]
    assert wrong == []


def test_every_label_that_a_text_shows_is_there(alert: dict[str, Any], labels: dict[str, set[str]]) -> None:
    shown = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    had = set.union(*(labels[name] for name in names_in(alert["expr"])))

    assert shown - had - OF_PROMETHEUS == set()
    assert "instance" in shown


def test_the_states_and_kinds_that_are_matched_exist(alerts: list[dict[str, Any]]) -> None:
    """A misspelt state would never fire."""
    matched = set(re.findall(r"state=\"(\w+)\"", " ".join(alert["expr"] for alert in alerts)))

    assert matched - {"closed"} == {state.value for state in HealthState} & matched


def test_it_has_a_severity_and_the_three_texts(alert: dict[str, Any]) -> None:
    assert alert["labels"] in ({"severity": "warning"}, {"severity": "critical"})
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}


def test_its_runbook_is_there_and_has_the_four_parts(alert: dict[str, Any]) -> None:
    text = (ROOT / alert["annotations"]["runbook_url"]).read_text()
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)

    assert heads == [alert["alert"], "What it means", "Look", "Do"]
    assert f"\n{alert['labels']['severity'].capitalize()}. " in text


def test_every_runbook_has_an_alert_and_is_listed(alerts: list[dict[str, Any]]) -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (\w+) \|$", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)

    assert {(alert["alert"], alert["labels"]["severity"]) for alert in alerts} == set(listed)
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"} == {name for name, _ in listed}


def test_every_alert_has_a_unit_test_in_which_it_fires() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", ()) if case.get("exp_alerts")}
    declared = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}

    assert fired == declared


def test_every_series_of_a_runbook_or_a_unit_test_is_exported(exported: set[str]) -> None:
    pages = [UNIT_TESTS, *RUNBOOKS.glob("*.md")]
    wrong = [(page.name, name) for page in pages for name in names_in(page.read_text()) if name not in exported]

    assert wrong == []


def test_what_a_runbook_searches_in_the_metrics_is_there(exported: set[str]) -> None:
    wrong = []
    for page in RUNBOOKS.glob("*.md"):
        for words in re.findall(r"/metrics \| grep (?:-E )?'?([\w|]+)'?", page.read_text()):
            wrong += [(page.name, word) for word in words.split("|") if not any(word in name for name in exported)]

    assert [found for found in wrong if found[1] != "corrupt"] == []  # a label's value


def test_every_key_that_a_runbook_names_exists() -> None:
    known = (ROOT / "docs/reference/configuration.md").read_text() + (ROOT / "docs/reference/stores.md").read_text()
    wrong = [
        (page.name, key)
        for page in RUNBOOKS.glob("*.md")
        for key in re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`", page.read_text())
        if f"`{key}`" not in known
    ]
    assert [
        found for found in wrong if found[1] not in {"queue_full", "end_reason", "is_running", "last_run_age_s"}
    ] == []


def test_every_command_of_a_runbook_takes_the_options_that_stand_there() -> None:
    lines = [
        (page.name, line)
        for page in RUNBOOKS.glob("*.md")
        for line in re.findall(r"lmcachectl ([^`\n#]+)", page.read_text())
    ]
    assert lines
    assert [(page, problem) for page, line in lines if (problem := _problem_of(line.split()))] == []


def _problem_of(words: list[str]) -> str:
    """Say which word the command line does not know."""
    command: click.Command = lmcachectl
    context = click.Context(command)
    while words and isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        if found is None:
            break
        command, words = found, words[1:]
    known = {name for parameter in command.params for name in parameter.opts}
    unknown = [word for word in words if word.startswith("-") and word not in known]
    positional = sum(isinstance(parameter, click.Argument) for parameter in command.params)
    if unknown or (words and not words[0].startswith("-") and not positional):
        return f"{command.name}: {unknown or words[0]}"
    return ""
