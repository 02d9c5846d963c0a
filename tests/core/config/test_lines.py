"""Every key is found where it was written, in any TOML that tomli accepts."""

from __future__ import annotations

import json

import tomli
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.config.lines import key_lines

KEY = st.one_of(
    st.from_regex(r"[A-Za-z0-9_\-]{1,5}", fullmatch=True),
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=4),
)
SCALAR = st.sampled_from(
    [
        "1", "5_000", "-1.5e3", "true", "nan", "1979-05-27T07:32:00Z", "07:32:00", '"plain"', "'lit # eral'",
        '"# not a comment"', '"quote \\" ] } ="', '"""\nmany\n[x]\ny = 2\n"""', "'''\na\n'b' = 1\n'''", '""', "''",
        '""""""', '"""a\\""""', '"""two "" inside"""',
    ]
)  # fmt: skip


def key_of(key: str) -> str:
    return (
        key
        if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum()
        else json.dumps(key).replace("\x7f", "\\u007f")
    )


VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: "[" + ", # c ]\n".join(parts) + " # end }\n]"),
        st.dictionaries(KEY.map(key_of), inner.filter(lambda text: "\n" not in text), max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=5,
)
PAIR = st.tuples(st.lists(KEY, min_size=1, max_size=2), VALUE)
BLANK = st.sampled_from(["", "\n", "# [comment] a = 1\n", "  \t\n", "\n\n"])
HEADER = st.tuples(st.sampled_from(["[", "[["]), st.lists(KEY, min_size=1, max_size=3))


@st.composite
def documents(draw: st.DrawFn) -> str:
    text = ""
    for _ in range(draw(st.integers(1, 5))):
        text += draw(BLANK)
        if draw(st.booleans()):
            bracket, parts = draw(HEADER)
            end = bracket.replace("[", "]")
            text += f"{bracket} {' . '.join(map(key_of, parts))} {end} # x\n"
        for keys, value in draw(st.lists(PAIR, max_size=3)):
            text += draw(BLANK) + f" {' . '.join(map(key_of, keys))} = {value} # after\n"
    return text


def paths(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    found = {path} if path else set()
    if isinstance(value, dict):
        return found.union(*(paths(part, (*path, key)) for key, part in value.items()))
    if isinstance(value, list):
        return found.union(*(paths(part, (*path, index)) for index, part in enumerate(value)))
    return found


@given(documents())
def test_every_key_and_no_other_has_a_line(text: str) -> None:
    try:
        tree = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    assert set(key_lines(text)) == paths(tree)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), SCALAR, min_size=1, max_size=8), st.data())
def test_the_line_is_where_the_key_stands(pairs: dict[str, str], data: st.DataObject) -> None:
    text, expected = "", {}
    for key, value in pairs.items():
        text += data.draw(BLANK)
        expected[(key,)] = text.count("\n") + 1
        text += f"{key} = {value}\n"
    assert key_lines(text) == expected


@given(st.text(max_size=60))
def test_any_text_ends_without_an_error(text: str) -> None:
    key_lines(text)


def test_tables_arrays_and_inline_tables() -> None:
    text = """\
a = 1
b.c = 2

[t]
d = [
  { e = 1 },
  2,
]

[[r]]
name = "x"
[r.sub]
f = 1

[[r]]
name = "y"
"""
    assert key_lines(text) == {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 2,
        ("t",): 4,
        ("t", "d"): 5,
        ("t", "d", 0): 6,
        ("t", "d", 0, "e"): 6,
        ("t", "d", 1): 7,
        ("r",): 10,
        ("r", 0): 10,
        ("r", 0, "name"): 11,
        ("r", 0, "sub"): 12,
        ("r", 0, "sub", "f"): 13,
        ("r", 1): 15,
        ("r", 1, "name"): 16,
    }


def test_windows_line_ends_count_once() -> None:
    assert key_lines("a = 1\r\n\r\nb = 2\r\n") == {("a",): 1, ("b",): 3}


def test_a_table_named_after_its_child_has_the_line_of_its_own_header() -> None:
    assert key_lines("[a.b]\nc = 1\n[a]\nd = 1\n")[("a",)] == 3
