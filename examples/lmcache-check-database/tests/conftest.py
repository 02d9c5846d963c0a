"""Fixtures of the plugin's own tests."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lmcache_check_database.check import DatabaseHealthCheck
from lmcache_check_database.settings import DatabaseSettings


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A SQLite file with one table of one row."""
    path = tmp_path / "app database.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE tenants (name TEXT)")
        connection.execute("INSERT INTO tenants VALUES ('one')")
        connection.commit()
    return path


@pytest.fixture
def check_of() -> Callable[..., DatabaseHealthCheck]:
    """Make a check from keys of its table."""
    return lambda **keys: DatabaseHealthCheck(DatabaseSettings(**keys))
