from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.config.origin import Layer, Origin, has, key_text, merge, overlay, prune, shown_path, value_at

KEY = st.sampled_from("abc")
TREE = st.recursive(st.integers(), lambda inner: st.dictionaries(KEY, inner, max_size=3)).filter(
    lambda value: isinstance(value, dict)
)


def leaves(tree: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], object]:
    found: dict[tuple[str, ...], object] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found.update(leaves(value, (*path, key)))
        else:
            found[(*path, key)] = value
    return found


@given(TREE, TREE)
def test_every_leaf_of_the_upper_layer_wins(below: dict[str, Any], above: dict[str, Any]) -> None:
    merged = merge([Layer("file", below, "f"), Layer("command line", above)])
    assert leaves(above).items() <= leaves(merged.tree).items()
    for path in leaves(above):
        assert merged.origin(path).kind == "command line"


@given(TREE, TREE)
def test_every_other_leaf_is_of_the_lower_layer(below: dict[str, Any], above: dict[str, Any]) -> None:
    merged = merge([Layer("file", below, "f"), Layer("command line", above)])
    for path in leaves(merged.tree).keys() - leaves(above).keys():
        assert leaves(below)[path] == leaves(merged.tree)[path]
        assert merged.origin(path).kind == "file"


@given(TREE, TREE)
def test_merging_changes_no_source(below: dict[str, Any], above: dict[str, Any]) -> None:
    before = (leaves(below), leaves(above))
    merge([Layer("file", below), Layer("env", above)])
    overlay(below, above)
    assert (leaves(below), leaves(above)) == before


@given(TREE, TREE)
def test_overlay_and_merge_agree(below: dict[str, Any], above: dict[str, Any]) -> None:
    assert overlay(below, above) == merge([Layer("file", below), Layer("env", above)]).tree


def test_a_list_is_replaced_as_a_whole() -> None:
    assert merge([Layer("file", {"a": [1, 2]}), Layer("env", {"a": [3]})]).tree == {"a": [3]}


def test_a_key_nobody_gave_is_a_default() -> None:
    assert merge([Layer("file", {"a": {}}, "f")]).origin_of_leaf(("a", "b")) == Origin("default")


def test_a_missing_key_is_near_its_table() -> None:
    layer = Layer("file", {"a": {"b": 1}}, "f.toml", {("a",): 3, ("a", "b"): 4})
    assert merge([layer]).origin(("a", "c")).about(("a", "c")) == "f.toml:3: a.c"


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin("file", "f.toml", 3, ("a",)), "f.toml:3: a.b[0]"),
        (Origin("file", "f.toml"), "f.toml: a.b[0]"),
        (Origin("env", "LMCACHE_A", 0, ("a",)), "LMCACHE_A: a.b[0]"),
        (Origin("env", "LMCACHE_A__B", 0, ("a", "b", 0)), "LMCACHE_A__B"),
        (Origin("command line"), "command line: a.b[0]"),
        (Origin("default"), "a.b[0]"),
    ],
)
def test_a_sentence_begins_with_the_place(origin: Origin, text: str) -> None:
    assert origin.about(("a", "b", 0)) == text


@pytest.mark.parametrize(
    ("origin", "label"),
    [
        (Origin("file", "f.toml", 3), "f.toml:3"),
        (Origin("env", "LMCACHE_A"), "env LMCACHE_A"),
        (Origin("command line"), "command line"),
        (Origin("default"), "default"),
    ],
)
def test_labels(origin: Origin, label: str) -> None:
    assert origin.label == label


def test_paths_through_lists() -> None:
    tree = {"a": [{"b": 1}]}
    assert value_at(tree, ("a", 0, "b")) == 1
    assert not has(tree, ("a", 1))
    assert not has(tree, ("a", "b"))
    assert key_text(("a", 0, "b")) == "a[0].b"


def test_prune_takes_a_key_out_of_a_list_item() -> None:
    tree = {"a": [{"b": 1, "c": 2}]}
    prune(tree, ("a", 0, "b"))
    assert tree == {"a": [{"c": 2}]}


def test_prune_takes_the_whole_list_for_an_item() -> None:
    tree = {"a": [1, 2], "b": 1}
    prune(tree, ("a", 1))
    assert tree == {"b": 1}


def test_a_path_is_shown_on_one_line() -> None:
    assert shown_path(Path("a\nb.toml")) == "a\\nb.toml"
