"""The health check."""

from __future__ import annotations

import importlib
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from lmcache_core import CheckResult, HealthCheck, PluginSettings, StoreURL

from lmcache_check_database.settings import DatabaseSettings


class Cursor(Protocol):
    """As much of a DB-API 2.0 cursor as the check needs."""

    def execute(self, operation: str, /) -> object:
        """Run a query."""

    def fetchone(self) -> Sequence[Any] | None:
        """Give the next row; None after the last."""


class Connection(Protocol):
    """As much of a DB-API 2.0 connection as the check needs."""

    def cursor(self) -> Cursor:
        """Make a cursor."""

    def close(self) -> None:
        """Let go of it."""


class Manager(Protocol):
    """As much of the cache manager as `create` needs."""

    def settings(self, table: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""


class DatabaseHealthCheck(HealthCheck):
    """Connects, runs one query, and looks at the first value of its first row."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._url = settings.url

    @classmethod
    def create(cls, manager: Manager) -> list[HealthCheck]:
        """Make one check, with the defaults where the configuration has no table."""
        settings = manager.settings(DatabaseSettings.table)
        return [cls(settings if isinstance(settings, DatabaseSettings) else DatabaseSettings())]

    def name(self) -> str:
        """Name the database without its credentials."""
        return f"DatabaseHealthCheck({self._url})"

    @property
    def timeout(self) -> float:
        """Seconds one run may take; the monitor goes on without one that takes longer."""
        return self._settings.timeout_s

    def check(self) -> CheckResult:
        """Ask the database; whatever it raises is the reason, without the password."""
        started = time.monotonic()
        try:
            with closing(self._connect()) as connection:
                row = self._ask(connection)
        except Exception as error:  # noqa: BLE001 - drivers raise what they like, and the text may hold the password
            raise ConnectionError(self._clean(f"{type(error).__name__}: {error}")) from None
        if row is None or not row[0]:
            found = "no row" if row is None else repr(row[0])
            return CheckResult(healthy=False, reason=f"the query gave {found}; it passes when that is true")
        return CheckResult(healthy=True, details={"latency_ms": round((time.monotonic() - started) * 1000, 3)})

    def _connect(self) -> Connection:
        if self._url.scheme == "sqlite" and not self._settings.module:
            return _connect_sqlite(self._url, self._settings.timeout_s)
        driver = importlib.import_module(self._settings.module or self._url.scheme)
        connection: Connection = driver.connect(**_arguments(self._url))
        return connection

    def _ask(self, connection: Connection) -> Sequence[Any] | None:
        cursor = connection.cursor()
        cursor.execute(self._settings.query)
        return cursor.fetchone()

    def _clean(self, text: str) -> str:
        """Take out of a driver's message what no page may show."""
        for secret in (self._url.password, *(value for _, value in self._url.query)):
            text = text.replace(secret, "***") if secret else text
        return text


def _connect_sqlite(url: StoreURL, timeout_s: float) -> sqlite3.Connection:
    path = url.path[1:]
    if path == ":memory:":
        return sqlite3.connect(path)
    address = Path(path).absolute().as_uri() + "?mode=rw"  # else sqlite makes an empty database, and all is well
    return sqlite3.connect(address, uri=True, timeout=timeout_s)


def _arguments(url: StoreURL) -> dict[str, str | int]:
    """Name the connection's parameters as PEP 249 suggests; absent ones are left to the driver."""
    named = {
        "host": url.host,
        "port": url.port,
        "user": url.username,
        "password": url.password,
        "database": url.path.lstrip("/"),
        **dict(url.query),
    }
    return {name: value for name, value in named.items() if value}
