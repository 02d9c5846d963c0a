"""Writing TOML. The standard library reads it and cannot write it."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_\-]+")
_DELETE: Final = "\x7f"


def dump_toml(tree: Mapping[str, object]) -> str:
    """Write a tree of tables, lists, text, numbers, booleans and dates.

    Raises:
        ValueError: A value that TOML cannot hold; the sentence names its key and type, not the value.
    """
    return "".join(f"{line}\n" for line in _lines(tree, ())).lstrip("\n")


def _lines(tree: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in tree.items() if _is_array_of_tables(value)}
    for key, value in tree.items():
        if key not in tables and key not in arrays:
            yield f"{_key(key)} = {_value(value, (*path, key))}"
    for key, table in tables.items():
        if not table or not all(isinstance(part, Mapping) for part in table.values()):
            yield ""
            yield f"[{_header((*path, key))}]"
        yield from _lines(table, (*path, key))
    for key, array in arrays.items():
        for table in array if isinstance(array, Sequence) else ():
            yield ""
            yield f"[[{_header((*path, key))}]]"
            yield from _lines(table, (*path, key))


def _is_array_of_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(part, Mapping) for part in value)


def _header(path: tuple[str, ...]) -> str:
    return ".".join(_key(part) for part in path)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """JSON's escapes are a part of TOML's, but for one character that TOML wants escaped and JSON does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text with half a surrogate pair cannot be written as TOML") from None
    return json.dumps(text, ensure_ascii=False).replace(_DELETE, "\\u007f")


def _value(value: object, path: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)  # inf and nan are spelt alike in both
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return _container(value, path)


def _container(value: object, path: tuple[str, ...]) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(part, path) for part in value)}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(str(key))} = {_value(part, (*path, str(key)))}" for key, part in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    raise ValueError(f"{'.'.join(path)}: a value of type {type(value).__name__!r} cannot be written as TOML")
