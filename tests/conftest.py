"""Fixtures for all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.redis_server import RedisServer

SYSTEM = Path(__file__).parent / "system"

if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # several on few cores: threads of torch's that spin would take each other's time
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Whether an example is quick says how busy the machine is; speed is judged in bench/.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with whole systems: a file that takes a minute, begun last, would be waited for alone."""
    items.sort(key=lambda item: SYSTEM not in item.path.parents)


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A plain server of its own, empty, on loopback and a unix socket."""
    with RedisServer() as server:
        yield server


def pytest_report_header() -> str:
    """Say which tests this machine cannot make."""
    found = shutil.which("promtool")
    return f"promtool: {found or 'not on the path; tests/deploy/prometheus/test_promtool.py is left out'}"
