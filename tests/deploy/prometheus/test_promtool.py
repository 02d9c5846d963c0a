"""Prometheus's own judgement of the rules; collected where promtool is on the path."""

from __future__ import annotations

import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "examples/deploy/prometheus"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)


def test_the_rules_are_right() -> None:
    done = promtool("check", "rules", "lmcache-alerts.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_tests_of_the_rules_pass() -> None:
    done = promtool("test", "rules", "lmcache-alerts-test.yaml")

    assert done.returncode == 0, done.stdout + done.stderr
