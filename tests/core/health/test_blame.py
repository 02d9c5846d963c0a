from pydantic import BaseModel, SecretStr

from lmcache_core.health.blame import texts_in


class Row(BaseModel):
    name: str
    policy: str = "recompute"


class Table(BaseModel):
    rows: tuple[Row, ...] = ()
    token: SecretStr = SecretStr("")
    limits: dict[str, int | list[str]] = {}
    folder: str = "default"


def test_what_the_user_set_is_his() -> None:
    table = Table(rows=(Row(name="job"), Row(name="queue", policy="bypass")), limits={"x": 3, "y": ["a", "b"]})

    assert sorted(texts_in(table)) == ["a", "b", "bypass", "job", "queue", "x", "y"]


def test_no_secret_is_among_it() -> None:
    assert list(texts_in(Table(token=SecretStr("hidden")))) == []


def test_no_table_has_no_texts() -> None:
    assert list(texts_in(None)) == []
