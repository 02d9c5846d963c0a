"""The table refuses what could never work, and shows no secret when it does."""

import pytest
from pydantic import ValidationError

from lmcache_check_database.settings import DatabaseSettings


@pytest.mark.parametrize("dsn", ["app.db", "", "sqlite://", "sqlite:///", "sqlite://host/app.db", "x://db:port/"])
def test_wrong_address_is_refused(dsn: str) -> None:
    with pytest.raises(ValidationError):
        DatabaseSettings(dsn=dsn)


@pytest.mark.parametrize(
    "keys", [{"timeout_s": 0}, {"timeout_s": "soon"}, {"query": ""}, {"module": "a b"}, {"colour": 1}]
)
def test_wrong_value_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DatabaseSettings(**keys)


def test_refusal_shows_no_password() -> None:
    with pytest.raises(ValidationError) as caught:
        DatabaseSettings(dsn="driver://monitor:canary@db-1:port/app")

    assert "canary" not in str(caught.value)


def test_repr_shows_no_password() -> None:
    assert "canary" not in repr(DatabaseSettings(dsn="driver://monitor:canary@db-1/app"))
