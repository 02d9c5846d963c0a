"""A variable's text becomes what its field wants, by the field's own strict rules."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from lmcache_core.config.words import read_text, truth


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    text: str = ""
    maybe: str | None = None
    whole: int = 0
    number: float = Field(default=0.0, gt=0)
    flag: bool = False
    words: tuple[str, ...] = ()
    numbers: list[float] = []
    either: int | str = 0
    path: Path = Path()
    colour: Colour = Colour.RED
    word: Literal["a", "b"] = "a"
    secret: SecretStr = SecretStr("")
    table: dict[str, int] = {}


def read(name: str, text: str) -> object:
    value, errors = read_text(Model.model_fields[name], text)
    assert errors == []
    return value


def error(name: str, text: str) -> str:
    value, errors = read_text(Model.model_fields[name], text)
    assert value == text
    return errors[0]["type"]


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "ON", "y", "t", " true "])
def test_yes(text: str) -> None:
    assert read("flag", text) is True


@pytest.mark.parametrize("text", ["false", "FALSE", "0", "no", "off", "n", "f"])
def test_no(text: str) -> None:
    assert read("flag", text) is False


@pytest.mark.parametrize("text", ["", "2", "maybe", "falsee", "null"])
def test_neither_yes_nor_no(text: str) -> None:
    assert error("flag", text) == "bool_type"


@given(st.text())
def test_truth_of_any_text_ends(text: str) -> None:
    assert truth(text) in {True, False, None}


@given(st.text(st.characters(blacklist_categories=["Cs"])))
def test_text_stays_as_it_is(text: str) -> None:
    assert read("text", text) == text
    assert read("secret", text) == text


@given(st.integers(-(2**60), 2**60))
def test_whole_numbers(value: int) -> None:
    assert read("whole", str(value)) == value


@given(st.floats(min_value=1e-300, allow_infinity=False))
def test_numbers(value: float) -> None:
    assert read("number", repr(value)) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("whole", "5_000", 5000),
        ("number", "5", 5),
        ("maybe", "null", "null"),
        ("path", "/a", "/a"),
        ("colour", "red", "red"),
        ("word", "b", "b"),
        ("either", "5", "5"),
        ("words", "a,b", ["a", "b"]),
        ("words", "a, b", ["a", "b"]),
        ("words", '["a","b"]', ["a", "b"]),
        ("words", "a", ["a"]),
        ("words", "5", ["5"]),
        ("words", "1,2", ["1", "2"]),
        ("words", "", []),
        ("numbers", "1,2.5", [1, 2.5]),
        ("numbers", "[1,2]", [1, 2]),
        ("table", '{"a": 1}', {"a": 1}),
    ],
)
def test_readings(name: str, text: str, value: object) -> None:
    assert read(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("whole", "abc", "int_type"),
        ("whole", "1.5", "int_type"),
        ("whole", "5GB", "int_type"),
        ("whole", "", "int_type"),
        ("number", "-1", "greater_than"),
        ("number", "nan", "finite_number"),
        ("number", "inf", "finite_number"),
        ("number", "8 GB", "float_type"),
        ("words", "{}", "tuple_type"),
        ("word", "c", "literal_error"),
        ("colour", "blue", "enum"),
    ],
)
def test_the_error_is_of_the_nearest_reading(name: str, text: str, kind: str) -> None:
    assert error(name, text) == kind
