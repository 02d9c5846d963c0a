"""Which plugins are loaded, and what stops a start-up."""

import itertools
import random
from importlib import metadata

import pytest

from lmcache_core.errors import ConfigError, PluginError, PluginUnavailableError
from lmcache_core.registry import PluginRegistry, PluginState, load_plugins


def test_good_plugin_is_loaded(good: PluginRegistry) -> None:
    record = good.plugins[0]

    assert (record.name, record.origin, record.state, record.reason) == (
        "good",
        "acme-good 1.0",
        PluginState.LOADED,
        "",
    )


def test_record_says_what_it_owns(good: PluginRegistry) -> None:
    record = good.plugins[0]

    assert record.tables == {"good": ("room", "label")}
    assert (record.schemes, record.policies, record.checks) == (("good", "goods"), ("good",), ("GoodCheck",))
    assert (record.messages, record.sinks, record.commands) == (("GoodMessage",), ("good",), ("good",))
    assert len(record.hooks) == 10
    assert record.load_ms > 0


def test_required_and_failing_stops_start_up(install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("broken", "good"), required=["returns_none"])

    assert str(caught.value) == (
        "plugin 'returns_none' (acme-broken 2.1): hook lmcache_health_checks returned None; "
        "return a list, or make it a generator"
    )
    assert caught.value.exit_code == 3


def test_required_and_failing_keeps_the_cause(install) -> None:
    with pytest.raises(PluginError) as caught:
        load_plugins(entry_points=install("broken"), required=["import_error"])

    assert isinstance(caught.value.__cause__, ImportError)


def test_required_and_unavailable_stops_start_up(install) -> None:
    with pytest.raises(PluginUnavailableError) as caught:
        load_plugins(entry_points=install("missing", only=["missing_extra"]), required=["missing_extra"])

    assert str(caught.value) == (
        "plugin 'missing_extra' (acme-missing 1.0): needs 'acme_client'; run: pip install 'acme-missing[client]'"
    )


def test_required_with_no_usable_store_stops_start_up(install) -> None:
    with pytest.raises(PluginUnavailableError) as caught:
        load_plugins(entry_points=install("missing", only=["missing_backend"]), required=["missing_backend"])

    assert caught.value.install == "pip install 'acme-missing[client]'"


def test_required_and_absent_is_the_users_error(install) -> None:
    with pytest.raises(ConfigError) as caught:
        load_plugins(entry_points=install("good"), required=["goood"])

    assert str(caught.value) == "plugins.required: no plugin named 'goood' is installed; did you mean 'good'?"
    assert caught.value.exit_code == 2


def test_disabled_and_absent_is_the_users_error(install) -> None:
    with pytest.raises(ConfigError) as caught:
        load_plugins(entry_points=install("good"), disabled=["redis"])

    assert str(caught.value) == (
        "plugins.disabled: no plugin named 'redis' is installed; install it, or take the name out"
    )


def test_all_absent_names_are_told_at_once(install) -> None:
    with pytest.raises(ConfigError) as caught:
        load_plugins(entry_points=install("good"), disabled=["one"], required=["two"])

    assert len(caught.value.problems) == 2


def test_required_and_disabled_contradict(install) -> None:
    with pytest.raises(ConfigError) as caught:
        load_plugins(entry_points=install("good"), disabled=["good"], required=["good"])

    assert str(caught.value) == "plugins.required: 'good' is in plugins.disabled too; take it out of one"


def test_required_third_party_contradicts_no_plugins(install) -> None:
    with pytest.raises(ConfigError) as caught:
        load_plugins(entry_points=install("good"), third_party=False, required=["good"])

    assert str(caught.value) == ("plugins.required: 'good' is a third party's, and those are switched off; allow them")


def test_disabled_is_not_imported(install) -> None:
    registry = load_plugins(entry_points=install("interrupt"), disabled=["interrupt"])

    assert [(one.state, one.reason) for one in registry.plugins] == [(PluginState.DISABLED, "disabled by name")]


def test_disabled_is_not_failed(install) -> None:
    registry = load_plugins(entry_points=install("good"), disabled=["good"])

    assert registry.failed() == {}
    assert registry.unloaded() == {"good": "disabled by name"}


def test_no_third_parties_leaves_the_built_in_ones(install) -> None:
    registry = load_plugins(entry_points=install("core", "good", "interrupt"), third_party=False)

    assert [(one.name, one.state.value) for one in registry.plugins] == [
        ("core_plugin", "loaded"),
        ("good", "disabled"),
        ("interrupt", "disabled"),
        ("zzz_schemes", "loaded"),
    ]


def test_too_old_hook_api_is_skipped_with_a_sentence(record_of) -> None:
    record = record_of("api", "old_api")

    assert record.state is PluginState.INCOMPATIBLE
    assert record.reason == "needs hook API <1, and this is 1.0; install a release of acme-api that fits"


def test_hook_api_of_an_object_counts(record_of) -> None:
    assert record_of("api", "object_api").state is PluginState.INCOMPATIBLE


def test_fitting_hook_api_is_loaded(record_of) -> None:
    assert record_of("api", "fitting_api").state is PluginState.LOADED


def test_optional_hook_of_a_later_api_is_left_alone(record_of) -> None:
    record = record_of("api", "later_hook")

    assert (record.state, record.hooks) == (PluginState.LOADED, ("lmcache_health_checks",))


def test_incompatible_is_among_the_failed(install) -> None:
    registry = load_plugins(entry_points=install("api", only=["old_api"]))

    assert list(registry.failed()) == ["old_api"]


def test_order_is_by_name_whatever_the_install_order(install) -> None:
    entries = list(install("good", "core", "late", "api", "broken"))
    seen = set()
    for seed in range(20):
        random.Random(seed).shuffle(entries)
        registry = load_plugins(entry_points=entries)
        seen.add(tuple(one.name for one in registry.plugins) + tuple(one.plugin for one in registry.health_checks()))

    assert len(seen) == 1
    names = [one.name for one in registry.plugins]
    assert names == sorted(names)


def test_clash_falls_on_the_same_plugin_in_any_install_order(install) -> None:
    pair = list(install("ours", "theirs", only=["ours_tables", "theirs_tables"]))
    reasons = {
        load_plugins(entry_points=order, strict=False).problems[0].plugin for order in itertools.permutations(pair)
    }

    assert reasons == {"theirs_tables"}


def test_installed_plugins_are_scanned_once(monkeypatch) -> None:
    scans = []
    real = metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda **names: scans.append(names) or real(**names))

    load_plugins(strict=False)

    assert scans == [{"group": "lmcache_core.plugins"}]


def test_lenient_load_keeps_the_problems(install) -> None:
    registry = load_plugins(
        entry_points=install("broken", "good"), required=["misspelt"], disabled=["absent"], strict=False
    )

    assert [type(problem) for problem in registry.problems] == [ConfigError, PluginError]
    assert [one.plugin for one in registry.health_checks()] == ["good"]
