"""Whatever is wrong with a plugin, it is a record with a reason, and nothing of it is registered."""

from collections.abc import Callable

import pytest

from lmcache_core.registry import PluginRecord, PluginState, load_plugins

FAULTS = {
    "import_error": "loading raised ImportError: cannot import name 'nothing_of_that_name' from 'acme_broken' ",
    "own_module": "loading raised ModuleNotFoundError: No module named 'acme_broken.not_there'",
    "syntax_error": "loading raised SyntaxError: invalid syntax (syntax_error.py, line 1)",
    "system_exit": "loading raised SystemExit(3); a plugin must not end its host",
    "no_object": "loading raised AttributeError: module 'acme_broken.misspelt' has no attribute 'plugin'",
    "half_done": "hook lmcache_health_checks raised RuntimeError: the second half is missing",
    "exits_in_hook": "hook lmcache_settings raised SystemExit('no licence'); a plugin must not end its host",
    "returns_none": "hook lmcache_health_checks returned None; return a list, or make it a generator",
    "returns_text": (
        "hook lmcache_health_checks returned an object of type 'str'; return a list, or make it a generator"
    ),
    "returns_coroutine": "hook lmcache_health_checks returned a coroutine; return a list, or make it a generator",
    "endless": "hook lmcache_health_checks gave more than 10000 items; it seems never to end",
    "wrong_items": "hook lmcache_health_checks gave an object of type 'str', which is no subclass of HealthCheck",
    "async_hook": "hook lmcache_health_checks is 'async def'; hooks are plain functions",
    "async_generator_hook": "hook lmcache_health_checks is 'async def'; hooks are plain functions",
    "async_told": "hook lmcache_health_changed is 'async def'; hooks are plain functions",
    "misspelt": "lmcache_health_check is no hook; did you mean lmcache_health_checks",
    "strange_hook": "zzz is no hook; see the list of hooks",
    "unknown_argument": "hook lmcache_metric_specs has the unknown argument 'config'; it may take: context",
    "unmarked": "function lmcache_health_checks is not marked; write @hookimpl above it",
    "no_hook": "it implements no hook; mark its functions with lmcache_core.hookimpl",
    "wrapper": "hook lmcache_health_checks is a wrapper; each plugin's hooks are called alone",
    "twice": "hook lmcache_health_checks is implemented twice; keep one function",
    "malformed_api": "lmcache_api is 'one or two', which is no version range such as '>=1,<2'",
    "number_api": "lmcache_api is 1, which is no version range such as '>=1,<2'",
    "repeats": "table 'repeated' is declared twice; declare it once",
    "undeclared_options": "options class 'OddSettings' are in no table; declare them in lmcache_settings too",
    "async_build": (
        "hook lmcache_storage_backends gave a store for odd:// with a build that is 'async def'; "
        "make it a plain function"
    ),
    "bad_scheme": (
        "hook lmcache_storage_backends raised ValueError: "
        "scheme 'ODD' must be lower-case letters, digits, '+', '-' or '.'"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_reason_says_what_is_wrong(name: str, record_of: Callable[[str, str], PluginRecord]) -> None:
    assert record_of("broken", name).reason.startswith(FAULTS[name])


@pytest.mark.parametrize("name", FAULTS)
def test_plugin_is_failed(name: str, record_of: Callable[[str, str], PluginRecord]) -> None:
    assert record_of("broken", name).state is PluginState.FAILED


def test_every_broken_plugin_is_examined(install) -> None:
    assert {entry.name for entry in install("broken")} == set(FAULTS)


def test_all_faults_at_once_harm_no_good_plugin(install) -> None:
    registry = load_plugins(entry_points=install("broken", "good"))

    assert [one.plugin for one in registry.health_checks()] == ["good"]
    assert [one.name for one in registry.plugins if one.state is PluginState.LOADED] == ["good"]


def test_half_done_registration_leaves_no_trace(install) -> None:
    registry = load_plugins(entry_points=install("broken", only=["half_done"]))

    assert (registry.tables(), registry.health_checks(), registry.policies(), registry.backends()) == ([], [], {}, {})
    assert registry.plugins[0].tables == {}


def test_failed_are_listed_with_reason(install) -> None:
    registry = load_plugins(entry_points=install("broken", "good"))

    assert set(registry.failed()) == set(FAULTS)
    assert registry.failed()["returns_none"] == FAULTS["returns_none"]


def test_traceback_is_kept_as_text(record_of) -> None:
    record = record_of("broken", "half_done")

    assert 'half_done.py", line' in record.traceback
    assert "RuntimeError: the second half is missing" in record.traceback


def test_error_names_plugin_distribution_and_version(record_of) -> None:
    assert str(record_of("broken", "returns_none").error()) == (
        "plugin 'returns_none' (acme-broken 2.1): hook lmcache_health_checks returned None; "
        "return a list, or make it a generator"
    )


def test_one_warning_for_an_optional_plugin(install, caplog) -> None:
    load_plugins(entry_points=install("broken", only=["system_exit"]))

    assert [entry.getMessage() for entry in caplog.records] == [
        "plugin 'system_exit' (acme-broken 2.1): loading raised SystemExit(3); a plugin must not end its host"
    ]
    assert caplog.records[0].exc_info is not None


def test_keyboard_interrupt_is_the_users(install) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_plugins(entry_points=install("interrupt"))


def test_malformed_entry_point_is_the_plugins_fault(install, tmp_path) -> None:
    info = tmp_path / "odd-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: odd\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lmcache_core.plugins]\nodd = not a module!\n")

    registry = load_plugins(entry_points=install(str(tmp_path)))

    assert [(one.name, one.state) for one in registry.plugins] == [("odd", PluginState.FAILED)]
