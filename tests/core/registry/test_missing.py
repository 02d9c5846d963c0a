"""A plugin whose extra is not installed says which line mends it."""

import sys

import pytest

from lmcache_core.registry import PluginState, load_plugins
from lmcache_core.registry.missing import is_installed

LINES = {
    "missing_extra": "needs 'acme_client'; run: pip install 'acme-missing[client]'",
    "missing_caught": "needs 'acme_client'; run: pip install 'acme-missing[client]'",
    "missing_in_hook": "needs 'acme_client'; run: pip install 'acme-missing[client]'",
    "missing_hard": "needs 'acme_hard_dependency'; run: pip install acme-missing",
    "missing_unlisted": "needs 'acme_unlisted'; run: pip install acme-missing acme_unlisted",
}


@pytest.mark.parametrize("name", LINES)
def test_pip_line_is_the_reason(name: str, record_of) -> None:
    assert record_of("missing", name).reason == LINES[name]


@pytest.mark.parametrize("name", LINES)
def test_plugin_is_unavailable(name: str, record_of) -> None:
    assert record_of("missing", name).state is PluginState.UNAVAILABLE


@pytest.mark.parametrize("name", ["missing_stdlib", "missing_submodule"])
def test_module_that_no_package_brings_is_a_failure(name: str, record_of) -> None:
    assert record_of("missing", name).state is PluginState.FAILED


def test_unavailable_at_import_is_among_the_failed(install) -> None:
    registry = load_plugins(entry_points=install("missing", only=["missing_extra"]))

    assert registry.failed() == {"missing_extra": LINES["missing_extra"]}


def test_store_without_its_client_keeps_its_declarations(install) -> None:
    registry = load_plugins(entry_points=install("missing", only=["missing_backend"]))

    assert list(registry.backends()) == ["acme", "acmes"]
    assert registry.failed() == registry.unloaded() == {}


def test_plugin_of_stores_without_client_is_unavailable(record_of) -> None:
    record = record_of("missing", "missing_backend")

    assert record.state is PluginState.UNAVAILABLE
    assert record.reason == "needs 'acme_client.sync'; run: pip install 'acme-missing[client]'"


def test_unusable_scheme_says_what_to_install(install) -> None:
    registry = load_plugins(entry_points=install("missing", only=["missing_backend"]))

    assert str(registry.unusable("acmes")) == (
        "plugin 'missing_backend' (acme-missing 1.0): needs 'acme_client.sync'; run: pip install 'acme-missing[client]'"
    )


def test_one_usable_store_keeps_the_plugin_loaded(install) -> None:
    registry = load_plugins(entry_points=install("missing", only=["missing_part"]))

    assert registry.plugins[0].state is PluginState.LOADED
    assert registry.plugins[0].reason == "fancy:// needs 'acme_client'; run: pip install 'acme-missing[client]'"
    assert registry.unusable("plain") is None


def test_looking_for_a_module_imports_nothing() -> None:
    before = set(sys.modules)

    assert is_installed("this.is.only")
    assert is_installed("wsgiref.validate")
    assert not {"this", "wsgiref"} & (set(sys.modules) - before)


def test_module_without_a_spec_is_there() -> None:
    assert is_installed("__main__")
