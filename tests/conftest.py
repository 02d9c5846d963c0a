"""Fixtures for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.redis_server import RedisServer

# Whether an example is quick says how busy the machine is; speed is judged in bench/.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A plain server of its own, empty, on loopback and a unix socket."""
    with RedisServer() as server:
        yield server


def pytest_report_header() -> str:
    """Say which tests this machine cannot make."""
    found = shutil.which("promtool")
    return f"promtool: {found or 'not on the path; tests/deploy/prometheus/test_promtool.py is left out'}"
