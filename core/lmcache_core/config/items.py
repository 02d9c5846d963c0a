"""Variables that name a key within an entry of a list of tables, such as ``LMCACHE_REMOTES__0__URL``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from lmcache_core.config.fields import fields_of, item_model, table_model
from lmcache_core.config.nearest import suggestion
from lmcache_core.config.origin import KeyPath, Layer, Merged, Tree, has, key_text, overlay, value_at

_NO_LETTER = re.compile(r"[^a-z0-9]+")
_MOST_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Split:
    """A path that goes into an entry of a list.

    Attributes:
        place: Of the list.
        entry: Its index or name, as written.
        rest: The key within.
        model: Of one entry.
    """

    place: KeyPath
    entry: str
    rest: KeyPath
    model: type[BaseModel]


@dataclass(frozen=True, slots=True)
class ItemLeaf:
    """What one such variable says."""

    variable: str
    split: Split
    value: Any = field(repr=False)


def split_path(model: type[BaseModel], path: KeyPath) -> Split | None:
    """Part a path at the first list of tables that it goes through; None where it goes through none."""
    here = model
    for position, key in enumerate(path[:-2]):
        found = fields_of(here).get(str(key))
        if found is None:
            return None
        table, item = table_model(found.annotation), item_model(found.annotation)
        if table is None:
            entry, rest = str(path[position + 1]), path[position + 2 :]
            return None if item is None else Split(path[: position + 1], entry, rest, item)
        here = table
    return None


def lay_items(merged: Merged, leaves: Iterable[ItemLeaf]) -> list[tuple[str, KeyPath, str]]:
    """Put single keys over the entries of the lists that lie there; an index of one past the last begins a new entry.

    Returns:
        Variable, path and sentence of each that fits no entry.
    """
    variables: dict[KeyPath, str] = {}
    layer = Layer("env", variables=variables)
    problems = []
    for leaf in sorted(leaves, key=_order):
        split = leaf.split
        entries = _entries(merged.tree, split.place)
        if entries is None:
            continue  # that it must be a list is said already
        index = _find(entries, split.entry)
        if index is None:
            problems.append((leaf.variable, (*split.place, split.entry, *split.rest), _sentence(entries, split)))
            continue
        here = (*split.place, index)
        if index == len(entries):
            entries.append({})
            merged.layers.setdefault(split.place, layer)
            merged.layers[here] = layer
            variables[here] = leaf.variable
        if isinstance(entries[index], dict):
            entries[index] = overlay(entries[index], _nested(split.rest, leaf.value))
            _put(merged.tree, split.place, entries)
            key = here + split.rest
            merged.layers[key] = layer
            variables[key] = leaf.variable
    return problems


def _order(leaf: ItemLeaf) -> tuple[str, bool, int, int, str]:
    entry = leaf.split.entry
    is_index = _is_index(entry)
    return key_text(leaf.split.place), not is_index, int(entry) if is_index else 0, len(leaf.split.rest), leaf.variable


def _entries(tree: Tree, place: KeyPath) -> list[Any] | None:
    """Give a copy of the list that lies there, an empty one for none; None for what is no list."""
    if not has(tree, place):
        return []
    found = value_at(tree, place)
    return list(found) if isinstance(found, list) else None


def _is_index(entry: str) -> bool:
    return entry.isdecimal() and len(entry) <= _MOST_DIGITS


def _find(entries: list[Any], entry: str) -> int | None:
    if _is_index(entry):
        return int(entry) if int(entry) <= len(entries) else None
    names = [_plain(name) for name in _names(entries)]
    return names.index(entry) if names.count(entry) == 1 else None


def _sentence(entries: list[Any], split: Split) -> str:
    key = key_text(split.place)
    if _is_index(split.entry):
        return f"{key} has {len(entries)} entries here, so the next one is number {len(entries)}"
    names = [name for name in _names(entries) if name]
    same = [name for name in names if _plain(name) == split.entry]
    if same:
        return f"{len(same)} entries of {key} have such a name; give the number instead"
    return f"no entry of {key} has that name{suggestion(split.entry, names)}; for a new one give number {len(entries)}"


def _names(entries: list[Any]) -> list[str]:
    return [str(entry.get("name", "")) if isinstance(entry, dict) else "" for entry in entries]


def _plain(name: str) -> str:
    return _NO_LETTER.sub("_", name.lower()).strip("_")


def _nested(rest: KeyPath, value: Any) -> Tree:
    for key in reversed(rest):
        value = {str(key): value}
    tree: Tree = value
    return tree


def _put(tree: Tree, place: KeyPath, entries: list[Any]) -> None:
    for key in place[:-1]:
        tree = tree.setdefault(str(key), {})
    tree[str(place[-1])] = entries
