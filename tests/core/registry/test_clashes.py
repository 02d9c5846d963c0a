"""Two plugins, one name: start-up stops and both distributions are named."""

import pytest

from lmcache_core.errors import PluginError
from lmcache_core.registry import load_plugins

KINDS = {
    "tables": "table",
    "policies": "fallback policy",
    "schemes": "URL scheme",
    "sinks": "usage sink",
    "commands": "command",
}


@pytest.mark.parametrize("kind", KINDS)
def test_second_claim_names_both(kind: str, install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("ours", "theirs", only=[f"ours_{kind}", f"theirs_{kind}"]))

    assert str(caught.value) == (
        f"plugin 'theirs_{kind}' (theirs 2.0): {KINDS[kind]} 'claimed' is already declared by "
        f"plugin 'ours_{kind}' (ours 1.0); disable or uninstall one of the two"
    )


def test_usage_messages_of_one_name_clash(install) -> None:
    with pytest.raises(PluginError, match="usage message 'ClaimMessage' is already declared by plugin 'ours_messages'"):
        load_plugins(entry_points=install("ours", "theirs", only=["ours_messages", "theirs_messages"]))


def test_two_distributions_with_one_plugin_name(install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("theirs", "ours", only=["twin"]))

    assert str(caught.value) == (
        "plugin 'twin' (theirs 2.0): the name is already taken by ours 1.0; uninstall one of the two"
    )


def test_name_of_a_built_in_plugin_cannot_be_taken(install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("theirs", "core", only=["core_plugin"]))

    assert str(caught.value) == (
        "plugin 'core_plugin' (theirs 2.0): the name belongs to the built-in plugin of LMCache_Core 9.9; "
        "uninstall this one or have it renamed"
    )


def test_scheme_of_a_built_in_store_cannot_be_taken_by_a_name_that_sorts_first(install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("theirs", "core", only=["aaa_schemes", "zzz_schemes"]))

    assert caught.value.plugin == "aaa_schemes"


def test_built_in_command_cannot_be_taken(install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("theirs", only=["command_taker"]))

    assert str(caught.value) == (
        "plugin 'command_taker' (theirs 2.0): command 'plugins' is built in and cannot be taken; rename it"
    )


def test_disabling_by_name_ends_a_clash(install) -> None:
    registry = load_plugins(
        entry_points=install("ours", "theirs", only=["ours_tables", "theirs_tables"]), disabled=["ours_tables"]
    )

    assert [one.plugin for one in registry.tables()] == ["theirs_tables"]


def test_lenient_load_keeps_the_first_and_leaves_the_second_out(install) -> None:
    registry = load_plugins(entry_points=install("ours", "theirs", only=["ours_tables", "theirs_tables"]), strict=False)

    assert [one.plugin for one in registry.tables()] == ["ours_tables"]
    assert list(registry.failed()) == ["theirs_tables"]
    assert len(registry.problems) == 1


def test_clash_is_not_warned_of_as_well(install, caplog) -> None:
    load_plugins(entry_points=install("ours", "theirs", only=["twin"]), strict=False)

    assert caplog.records == []
