"""The alert rules, read once. Their own unit tests need Prometheus's promtool, which pip cannot install."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "examples/deploy/prometheus/lmcache-alerts.yaml"
RUNBOOKS = ROOT / "docs/runbooks"

collect_ignore = [] if shutil.which("promtool") else ["test_promtool.py"]  # the suite's header says which


@pytest.fixture(scope="session")
def alerts() -> list[dict[str, Any]]:
    """All alerts."""
    return alerts_of_file()


def alerts_of_file() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def pytest_generate_tests(metafunc: Any) -> None:
    """Give each test of an `alert` argument one case an alert."""
    if "alert" in metafunc.fixturenames:
        found = alerts_of_file()
        metafunc.parametrize("alert", found, ids=[alert["alert"] for alert in found])
