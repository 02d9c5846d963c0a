from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from lmcache_core.config.address import StoreAddress
from lmcache_core.config.secrets import MASK, is_secret, mask_address, masked, redact, shown, shows_input

CANARY = "c4n4ry"


class Model(BaseModel):
    plain: str = ""
    secret: SecretStr = SecretStr("")
    maybe: SecretStr | None = None
    url: StoreAddress | None = None
    password: str = ""
    api_key: str = ""
    key_prefix: str = ""
    token_count: int = 0
    number: float = 0.0
    word: Literal["a"] = "a"
    path: Path = Path()
    many: dict[str, str] = {}


FIELDS = Model.model_fields


@pytest.mark.parametrize("name", ["secret", "maybe", "url", "password", "api_key"])
def test_secret_by_type_or_name(name: str) -> None:
    assert is_secret(name, FIELDS[name])


@pytest.mark.parametrize("name", ["plain", "key_prefix", "token_count", "number", "word", "path"])
def test_not_secret(name: str) -> None:
    assert not is_secret(name, FIELDS[name])


def test_an_unknown_key_is_secret() -> None:
    assert is_secret("plain", None)


@pytest.mark.parametrize(
    ("name", "value", "is_core", "shows"),
    [
        ("plain", "x", True, True),
        ("plain", "x", False, False),
        ("number", "x", False, True),
        ("word", "x", False, True),
        ("number", "redis://u:p@h", False, False),
        ("number", "user@host", True, False),
        ("secret", 5, False, False),
        ("url", 5, True, False),
        ("password", 5, False, False),
        ("many", {"a": "b"}, True, False),
    ],
)
def test_what_a_sentence_may_show(name: str, value: object, is_core: bool, shows: bool) -> None:
    assert shows_input(name, FIELDS[name], value, is_core=is_core) is shows


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("secret", SecretStr(CANARY), MASK),
        ("secret", SecretStr(""), ""),
        ("password", CANARY, MASK),
        ("url", StoreAddress(f"redis://u:{CANARY}@h/0?x={CANARY}"), "redis://h/0"),
        ("plain", f"http://u:{CANARY}@h/p?q={CANARY}", "http://h/p"),
        ("many", {"password": CANARY, "a": "b"}, {"password": MASK, "a": "b"}),
        ("many", [f"http://u:{CANARY}@h"], ["http://h"]),
        ("path", Path("/a"), "/a"),
        ("number", 1.5, 1.5),
        ("maybe", None, None),
    ],
)
def test_masked(name: str, value: object, result: object) -> None:
    assert masked(name, FIELDS[name], value) == result


def test_a_nested_model_is_masked() -> None:
    assert masked("plain", FIELDS["plain"], Model(secret=CANARY, password=CANARY))["password"] == MASK


@given(st.text(st.characters(blacklist_characters="/@?# \t\r\n", blacklist_categories=["Cs", "Zs", "Zl", "Zp", "Cc"])))
def test_no_password_survives_in_an_address(password: str) -> None:
    assert mask_address(f"see redis://user:{password}@host/0 there") == "see redis://host/0 there"


def test_redact_takes_the_longest_first() -> None:
    assert redact("abcdef and abc", ["abc", "abcdef"]) == f"{MASK} and {MASK}"


def test_redact_leaves_very_short_secrets() -> None:
    assert redact("a bad day", ["a"]) == "a bad day"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "none"), ("x", "x"), (True, "true"), (["a"], '["a"]'), (1.5, "1.5")]
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text
