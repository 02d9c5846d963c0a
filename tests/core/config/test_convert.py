from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.config.convert import Conversion
from lmcache_core.config.origin import key_text
from lmcache_core.config.toml_text import dump_toml

CANARY = "c4n4ry"


def convert(old: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    conversion = Conversion(frozenset({"file", "redis"}))
    conversion.convert(old)
    return conversion.tree, [f"{key_text(path)}: {note}" for path, note in conversion.notes]


def test_keys_we_share_are_taken_over_in_silence() -> None:
    old = {"chunk_size": 64, "local_cpu": True, "remote_url": "redis://h", "extra_config": {"ping_timeout": 3}}
    assert convert(old) == (old, [])


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ({"local_cpu": "false"}, {"local_cpu": False}, "local_cpu: rewritten: the text 'false' as false"),
        ({"max_local_cpu_size": "8.0"}, {"max_local_cpu_size": 8.0}, "max_local_cpu_size: rewritten: the text '8.0' as 8.0"),
        ({"max_local_cpu_size": "5GB"}, {}, "max_local_cpu_size: dropped: must be a number, got '5GB'; write it without a unit"),
        ({"chunk_size": None}, {}, "chunk_size: left out: null means its default"),
        ({"local_device": "cpu"}, {}, "local_device: dropped: retired by LMCache; use local_cpu (true or false)"),
        ({"use_layerwise": True}, {}, "use_layerwise: dropped: LMCache's own, nothing here takes its place"),
        ({"storage_plugins": ["x"]}, {}, "storage_plugins: dropped: plugins are found by their entry points; installing one is enough"),
        ({"chunk_sise": 1}, {}, "chunk_sise: dropped: neither LMCache nor this product has such a key; did you mean 'chunk_size'?"),
        ({"ping_interval": 5}, {"extra_config": {"ping_interval": 5}}, "ping_interval: moved to extra_config.ping_interval; was its indent lost?"),
        ({"tag_keys": ["a"]}, {}, "tag_keys: dropped: LMCache reads it under extra_config (was its indent lost?), and nothing here takes its place"),
        ({"extra_config": None}, {}, "extra_config: is empty; was the indent of the keys below it lost?"),
        ({"extra_config": [1]}, {}, "extra_config: dropped: must be a table"),
        ({"extra_config": {"tag_keys": ["a"]}}, {}, "extra_config.tag_keys: dropped: LMCache's own, nothing here takes its place"),
        ({"extra_config": {"pingtimeout": 1}}, {}, "extra_config.pingtimeout: dropped: neither LMCache nor this product has such a key; did you mean 'ping_timeout'?"),
        ({"extra_config": {"a.b": 1}}, {"extra_config": {"a": {"b": 1}}}, "extra_config.a.b: moved to extra_config.a.b; it needs a plugin that owns table 'a'"),
        ({"extra_config": {"storage_plugin.MyStore.class_name": "C"}}, {"extra_config": {"my_store": {"class_name": "C"}}}, "extra_config.storage_plugin.MyStore.class_name: moved to extra_config.my_store.class_name; it needs a plugin that owns table 'my_store'"),
        ({"extra_config": {"t": {"a": 1}}}, {"extra_config": {"t": {"a": 1}}}, "extra_config.t: moved to [extra_config.t]; it needs a plugin that owns table 't'"),
        ({"extra_config": {".": 1}}, {}, "extra_config..: dropped: neither LMCache nor this product has such a key"),
        ({"remote_serde": "kivi"}, {}, "remote_serde: dropped: 'kivi' is not supported: chunks are kept as they are, so that answers stay exact; write 'naive' or leave the key out"),
        ({"remote_url": "lm://h"}, {"remote_url": "lm://h"}, "remote_url: kept; no loaded plugin serves lm://, so config check refuses it until one does"),
        ({"plugins": {"required": []}}, {}, "plugins: dropped: neither LMCache nor this product has such a key; did you mean 'plugins'?"),
    ],
)  # fmt: skip
def test_what_is_changed_is_noted(old: dict[str, Any], new: dict[str, Any], note: str) -> None:
    assert convert(old) == (new, [note])


def test_the_keys_of_an_unknown_store_go_to_a_table_of_its_scheme() -> None:
    tree, notes = convert({"remote_url": "my-store://h", "extra_config": {"depth": 3, "ping_timeout": 2}})
    assert tree == {"remote_url": "my-store://h", "extra_config": {"my_store": {"depth": 3}, "ping_timeout": 2}}
    assert notes[1:] == [
        "extra_config.depth: moved to extra_config.my_store.depth; it needs a plugin that owns table 'my_store'"
    ]


def test_an_external_connector_becomes_a_plugins_table() -> None:
    old = {
        "remote_url": "external://h:0/a.b_connector/?connector_name=BConnector",
        "extra_config": {"b_secret": CANARY},
    }
    tree, notes = convert(old)
    assert tree == {
        "extra_config": {
            "b_connector": {"module_path": "a.b_connector", "class_name": "BConnector", "b_secret": CANARY}
        }
    }
    assert CANARY not in "\n".join(notes)


def test_null_within_a_table_is_left_out() -> None:
    tree, notes = convert({"extra_config": {"t": {"a": None, "b": [1, None]}}})
    assert tree == {"extra_config": {"t": {"b": [1]}}}
    assert notes[1:] == [
        "extra_config.t.a: left out: TOML has no null",
        "extra_config.t.b[1]: left out: TOML has no null",
    ]


@pytest.mark.parametrize(
    "url", [f"redis://u:{CANARY}@h", f"lm://u:{CANARY}@h", f"u:{CANARY}@h", f"external://u:{CANARY}@h/m?connector_name=C", f"{CANARY}"]
)  # fmt: skip
def test_notes_show_no_address(url: str) -> None:
    assert CANARY not in "\n".join(convert({"remote_url": url})[1])


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(st.characters(blacklist_categories=["Cs"]))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(st.characters(blacklist_categories=["Cs"])), inner, max_size=3)),
)  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(
        ["chunk_size", "local_cpu", "remote_url", "extra_config", "use_layerwise", "local_device", "log_level"]
    ),
    st.text(st.characters(blacklist_categories=["Cs"])),
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_configuration_converts_to_toml(old: dict[str, Any]) -> None:
    dump_toml(convert(old)[0])


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_no_key_is_lost_in_silence(old: dict[str, Any]) -> None:
    tree, notes = convert(old)
    for key, value in old.items():
        empty_table = key == "extra_config" and value == {}
        assert key in tree or empty_table or any(note.startswith(key) for note in notes)
