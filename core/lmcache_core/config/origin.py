"""Where each value of the configuration comes from, and the merging of the sources leaf by leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""Such as ``("remotes", 0, "url")``."""

Tree: TypeAlias = dict[str, Any]
"""Nested tables of JSON-like values."""

Kind: TypeAlias = Literal["default", "file", "env", "command line"]

_KIND_ORDER: tuple[Kind, ...] = ("file", "env", "command line", "default")


@dataclass(frozen=True, slots=True)
class Origin:
    """The place one value was written.

    Attributes:
        kind: Which source.
        place: File, variable's name, or ``""``.
        line: In the file; 0 where it cannot be told.
        names: The key that the place itself names, such as the whole key of a variable.
    """

    kind: Kind
    place: str = ""
    line: int = 0
    names: KeyPath = ()

    @property
    def label(self) -> str:
        """As `config show` prints it, such as ``lmcache.toml:3`` or ``env LMCACHE_CHUNK_SIZE``."""
        if self.kind == "env":
            return f"env {self.place}"
        return self._position if self.kind == "file" else self.kind

    @property
    def _position(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place

    def about(self, path: KeyPath) -> str:
        """Begin a sentence about a key, such as ``lmcache.toml:3: chunk_size``."""
        key = key_text(path)
        if self.kind == "default" or (self.kind == "file" and not path):
            return self._position or key
        if self.kind == "env":
            return self.place if path == self.names else f"{self.place}: {key}"
        return f"{self._position if self.kind == 'file' else self.kind}: {key}"

    @property
    def order(self) -> tuple[int, int, str]:
        """Sorts a report: file by line, then variables, then the command line."""
        return (_KIND_ORDER.index(self.kind), self.line, self.place)


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Layer:
    """One source, read. Values are in `tree`; `origin` tells where each was written."""

    kind: Kind
    tree: Tree = field(default_factory=dict, repr=False)
    place: str = ""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    variables: Mapping[KeyPath, str] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Tell where a key, or the nearest table around it, was written."""
        for length in range(len(path), 0, -1):
            known = path[:length]
            if self.kind == "file" and known in self.lines:
                return Origin("file", self.place, self.lines[known], known)
            if self.kind == "env" and known in self.variables:
                return Origin("env", self.variables[known], 0, known)
        return Origin(self.kind, self.place)

    def replaced(self, tree: Tree) -> Layer:
        """Give the same source with another tree."""
        return Layer(self.kind, tree, self.place, self.lines, self.variables)


@dataclass(slots=True)
class Merged:
    """All sources in one tree, and which source each key came from."""

    tree: Tree = field(default_factory=dict, repr=False)
    layers: dict[KeyPath, Layer] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Tell where the effective value of a key, or the nearest table around it, was written."""
        for length in range(len(path), 0, -1):
            layer = self.layers.get(path[:length])
            if layer is not None:
                return layer.origin(path)
        return DEFAULT

    def origin_of_leaf(self, path: KeyPath) -> Origin:
        """Tell where the effective value of a key was written, or that it is the default."""
        return self.origin(path) if self.given(path) else DEFAULT

    def lay(self, layer: Layer) -> None:
        """Put one more source over the others; a list is replaced as a whole."""
        _lay(self.tree, layer.tree, (), layer, self.layers)

    def given(self, path: KeyPath) -> bool:
        """Tell whether any source has the key."""
        return has(self.tree, path)


def merge(layers: Sequence[Layer]) -> Merged:
    """Put layers over each other, the last one on top; a list is replaced as a whole."""
    merged = Merged()
    for layer in layers:
        merged.lay(layer)
    return merged


def _lay(below: Tree, above: Mapping[str, Any], path: KeyPath, layer: Layer, layers: dict[KeyPath, Layer]) -> None:
    for key, value in above.items():
        here = (*path, key)
        layers[here] = layer
        if isinstance(value, dict):
            table = below.get(key)
            below[key] = table if isinstance(table, dict) else {}
            _lay(below[key], value, here, layer, layers)
        else:
            for inner in [known for known in layers if len(known) > len(here) and known[: len(here)] == here]:
                del layers[inner]  # what lay within, such as a key of an entry of a list, is gone
            below[key] = value


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tree:
    """Give a new tree: `below` with the leaves of `above` over it."""
    result: Tree = {key: overlay(value, {}) if isinstance(value, dict) else value for key, value in below.items()}
    for key, value in above.items():
        table = result.get(key)
        if isinstance(value, dict):
            result[key] = overlay(table if isinstance(table, dict) else {}, value)
        else:
            result[key] = value
    return result


def value_at(tree: object, path: KeyPath) -> object:
    """Give the value at a path; raises KeyError where there is none."""
    for key in path:
        if isinstance(tree, dict) and key in tree:  # noqa: SIM114 - two kinds, two lines
            tree = tree[key]
        elif isinstance(tree, list) and isinstance(key, int) and key < len(tree):
            tree = tree[key]
        else:
            raise KeyError(path)
    return tree


def has(tree: object, path: KeyPath) -> bool:
    """Tell whether there is a value at a path."""
    try:
        value_at(tree, path)
    except KeyError:
        return False
    return True


def prune(tree: Tree, path: KeyPath) -> None:
    """Take a key out of a tree; a list item goes with the list. Nothing happens where it is not there."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    if path and has(tree, path):
        parent = value_at(tree, path[:-1])
        if isinstance(parent, dict):
            del parent[path[-1]]


def key_text(path: KeyPath) -> str:
    """Write a path as users do: ``remotes[0].url``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def one_line(text: str) -> str:
    """Escape what a terminal would not print: line breaks, control characters, half surrogates."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shown_path(path: Path) -> str:
    """Write a file's path on one line."""
    return one_line(str(path))
