"""The unit and its drop-in, read as systemd reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples/deploy/systemd"

collect_ignore = [] if shutil.which("systemd-analyze") else ["test_systemd_analyze.py"]

Unit = dict[str, list[tuple[str, str]]]


def read_unit(text: str) -> Unit:
    """Give each section's directives in their order; a directive may be there several times."""
    found: Unit = {}
    section = ""
    for line in text.splitlines():
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            found[section] = []
            continue
        name, separator, value = line.partition("=")
        assert separator, line
        found[section].append((name, value))
    return found


@pytest.fixture(scope="session")
def unit() -> Unit:
    return read_unit((FOLDER / "lmcache-server.service").read_text())


@pytest.fixture(scope="session")
def service(unit: Unit) -> dict[str, str]:
    """The directives of [Service], of which each is there once."""
    return dict(unit["Service"])
