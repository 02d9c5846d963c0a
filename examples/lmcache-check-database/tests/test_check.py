"""The check against real SQLite databases and against another DB-API module."""

import sys
from pathlib import Path

import pytest

from lmcache_check_database.check import DatabaseHealthCheck
from lmcache_check_database.settings import DatabaseSettings

OTHER = "driver://monitor:open%20sesame@db-1:5000/app?sslmode=require"


@pytest.fixture(autouse=True)
def driver_on_path(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield
    sys.modules.pop("driver_of_test", None)


def test_default_passes(check_of) -> None:
    assert check_of().check().healthy


def test_details_have_the_latency(check_of) -> None:
    assert check_of().check().details["latency_ms"] >= 0


def test_file_passes(check_of, database) -> None:
    assert check_of(dsn=f"sqlite:///{database}", query="SELECT count(*) > 0 FROM tenants").check().healthy


def test_false_value_fails(check_of, database) -> None:
    result = check_of(dsn=f"sqlite:///{database}", query="SELECT count(*) > 1 FROM tenants").check()

    assert (result.healthy, result.reason) == (False, "the query gave 0; it passes when that is true")


def test_no_row_fails(check_of, database) -> None:
    result = check_of(dsn=f"sqlite:///{database}", query="SELECT name FROM tenants WHERE name = 'two'").check()

    assert (result.healthy, result.reason) == (False, "the query gave no row; it passes when that is true")


def test_absent_file_fails_and_stays_absent(check_of, tmp_path) -> None:
    with pytest.raises(ConnectionError) as caught:
        check_of(dsn=f"sqlite:///{tmp_path}/absent.db").check()

    assert str(caught.value) == "OperationalError: unable to open database file"
    assert list(tmp_path.iterdir()) == []


def test_wrong_query_is_the_reason(check_of) -> None:
    with pytest.raises(ConnectionError, match="OperationalError: no such table: absent"):
        check_of(query="SELECT * FROM absent").check()


def test_other_module_gets_the_parts_of_the_address(check_of) -> None:
    check = check_of(
        dsn=OTHER,
        module="driver_of_test",
        query="SELECT port = 5000 AND database = 'app' AND more = '[(''sslmode'', ''require'')]' FROM asked",
    )

    assert check.check().healthy


def test_scheme_names_the_module(check_of) -> None:
    with pytest.raises(ConnectionError) as caught:
        check_of(dsn="no-such-driver://db-1/app").check()

    assert str(caught.value) == "ModuleNotFoundError: No module named 'no-such-driver'"


def test_reason_never_shows_the_password(check_of) -> None:
    check = check_of(dsn="driver://monitor:canary-1@db-1/app?token=canary-2", module="driver_of_test")

    with pytest.raises(ConnectionError) as caught:
        check.check()

    assert str(caught.value) == ("OperationalError: access denied for monitor with password *** and {'token': '***'}")


def test_name_has_no_credentials(check_of) -> None:
    assert check_of(dsn=OTHER).name() == "DatabaseHealthCheck(driver://db-1:5000/app)"


def test_timeout_is_the_tables(check_of) -> None:
    assert check_of(timeout_s=0.5).timeout == 0.5


class Manager:
    """A cache manager with or without the plugin's table."""

    def __init__(self, table: DatabaseSettings | None) -> None:
        self.table = table

    def settings(self, table: str) -> DatabaseSettings | None:
        return self.table if table == "database" else None


def test_create_without_a_table_takes_the_defaults() -> None:
    (check,) = DatabaseHealthCheck.create(Manager(None))

    assert check.name() == "DatabaseHealthCheck(sqlite:///:memory:)"


def test_create_takes_the_table() -> None:
    (check,) = DatabaseHealthCheck.create(Manager(DatabaseSettings(dsn="sqlite:////var/app.db")))

    assert check.name() == "DatabaseHealthCheck(sqlite:////var/app.db)"
