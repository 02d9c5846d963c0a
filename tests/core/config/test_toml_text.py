from __future__ import annotations

import datetime as dt
import math

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.config.toml_text import dump_toml

TEXT = st.text(st.characters(blacklist_categories=["Cs"]))
SCALAR = st.one_of(
    TEXT,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.dates(),
    st.datetimes(),
    st.times(),
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4))
)


@given(st.dictionaries(TEXT, VALUE, max_size=6))
def test_tomli_reads_back_what_was_written(tree: dict[str, object]) -> None:
    assert tomli.loads(dump_toml(tree)) == tree


def test_scalars_come_before_tables() -> None:
    assert dump_toml({"t": {"a": 1}, "b": 2, "r": [{"c": 3}, {"c": 4}]}) == (
        "b = 2\n\n[t]\na = 1\n\n[[r]]\nc = 3\n\n[[r]]\nc = 4\n"
    )


def test_a_table_of_tables_has_no_header_of_its_own() -> None:
    assert dump_toml({"extra_config": {"redis": {"ttl_s": 5}}}) == "[extra_config.redis]\nttl_s = 5\n"


def test_nan_and_inf() -> None:
    read = tomli.loads(dump_toml({"a": math.nan, "b": -math.inf}))
    assert math.isnan(read["a"])
    assert read["b"] == -math.inf


def test_dates() -> None:
    assert dump_toml({"a": dt.date(2024, 1, 2)}) == "a = 2024-01-02\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": b"canary"}}, "a.b: a value of type 'bytes' cannot be written as TOML"),
        ({"a": [None]}, "a: a value of type 'NoneType' cannot be written as TOML"),
        ({"a": "\ud800"}, "a text with half a surrogate pair cannot be written as TOML"),
    ],
)
def test_what_toml_cannot_hold_is_refused(value: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        dump_toml(value)
    assert str(caught.value) == message
