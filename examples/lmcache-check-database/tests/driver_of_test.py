"""A DB-API 2.0 module that is not sqlite3, as far as the check can tell."""

import sqlite3


class OperationalError(Exception):
    """What a driver raises."""


def connect(
    *, host: str, user: str, password: str, port: int = 0, database: str = "", **more: str
) -> sqlite3.Connection:
    """Answer on one host, with one password."""
    if (host, user, password) != ("db-1", "monitor", "open sesame"):
        raise OperationalError(f"access denied for {user} with password {password} and {more}")
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE asked (port, database, more)")
    connection.execute("INSERT INTO asked VALUES (?, ?, ?)", (port, database, str(sorted(more.items()))))
    return connection
