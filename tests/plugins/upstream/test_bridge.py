"""The bridge costs nothing where LMCache is absent, and refuses what it does not know."""

from __future__ import annotations

import importlib.util
import logging
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from lmcache_core import __version__
from lmcache_plugins.upstream import bridge, install, uninstall
from lmcache_plugins.upstream.join import JOINED, JoiningFinder, is_joined, join

CHECKS = "lmcache.v1.health_monitor.checks"
CONNECTORS = "lmcache.v1.storage_backend.connector"


@pytest.fixture(autouse=True)
def told(caplog) -> None:
    caplog.set_level(logging.INFO, "lmcache_plugins")


def found_in(name: str) -> list[str]:
    return [module.name for module in pkgutil.iter_modules(importlib.import_module(name).__path__)]


def test_here_is_no_lmcache() -> None:
    assert importlib.util.find_spec("lmcache") is None


def test_registering_without_lmcache_does_and_says_nothing(caplog) -> None:
    bridge.register()

    assert (is_joined(), caplog.messages) == (False, [])


def test_installing_without_lmcache_says_what_to_do(caplog) -> None:
    assert not install()
    assert (is_joined(), caplog.messages) == (
        False,
        ["lmcache is not installed, so there is nothing to join; run: pip install lmcache"],
    )


def test_registering_without_lmcache_imports_next_to_nothing() -> None:
    script = "import sys; from lmcache_plugins.upstream.bridge import register; register(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    tops = {name.split(".")[0] for name in done.stdout.split()}

    assert tops & {"lmcache", "torch", "numpy", "pydantic", "pluggy", "prometheus_client", "xxhash"} == set()
    assert done.stderr == ""


def test_vllm_is_told_of_the_bridge() -> None:
    project = tomli.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["vllm.general_plugins"]["lmcache_core_bridge"] == (
        f"{bridge.register.__module__}:{bridge.register.__name__}"
    )


def test_registering_never_raises(monkeypatch, caplog) -> None:
    def broken() -> None:
        raise RuntimeError("no import system today")

    monkeypatch.setattr(bridge, "find_release", broken)
    bridge.register()

    assert caplog.messages == ["lmcache-core could not join lmcache; both go on without each other"]


def test_a_folder_that_is_only_called_so_is_no_lmcache(tmp_path, monkeypatch, caplog) -> None:
    (tmp_path / "lmcache").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    bridge.register()

    assert (is_joined(), caplog.messages) == (False, [])


def test_another_version_is_refused_with_both_versions(lmcache_at, caplog) -> None:
    lmcache_at("0.6.0")

    assert not install()
    assert (is_joined(), caplog.messages) == (
        False,
        [f"lmcache-core {__version__} leaves lmcache 0.6.0 as it is: only 0.5.x is known to it"],
    )


def test_a_version_whose_packages_have_moved_is_refused(lmcache_at, caplog) -> None:
    lmcache_at("0.5.7", (CONNECTORS,))

    assert not install()
    assert caplog.messages == [f"lmcache-core {__version__} leaves lmcache 0.5.7 as it is: it has no package {CHECKS}"]


def test_joining_says_so_and_imports_nothing_of_lmcache(lmcache_at, caplog) -> None:
    lmcache_at("0.5.6")

    assert install()
    assert caplog.messages[0] == (
        f"lmcache-core {__version__} joined lmcache 0.5.6: its health monitor runs the plugins' checks, "
        "and its remote_url takes lmcore+<address of a store>"
    )
    assert [name for name in sys.modules if name.split(".")[0] == "lmcache"] == []


def test_vllms_call_joins(lmcache_at) -> None:
    lmcache_at("0.5.6")
    bridge.register()

    assert is_joined()


def test_packages_imported_after_it_are_joined(lmcache_at) -> None:
    lmcache_at("0.5.6")
    install()

    assert (found_in(CHECKS), found_in(CONNECTORS)) == (["lmcache_core_checks"], ["lmcache_core_adapter"])


def test_packages_imported_before_it_are_joined(lmcache_at) -> None:
    lmcache_at("0.5.6")
    assert found_in(CHECKS) == []
    install()

    assert (found_in(CHECKS), found_in(CONNECTORS)) == (["lmcache_core_checks"], ["lmcache_core_adapter"])


def test_joining_twice_is_joining_once(lmcache_at, caplog) -> None:
    lmcache_at("0.5.6")
    found_in(CHECKS)

    assert (install(), install(), len(caplog.messages)) == (True, True, 1)
    assert found_in(CHECKS) == ["lmcache_core_checks"]
    assert list(importlib.import_module(CHECKS).__path__).count(JOINED[CHECKS]) == 1


def test_threads_that_join_at_the_same_moment_join_once(lmcache_at) -> None:
    lmcache_at("0.5.6")
    join()  # as each does that saw that nobody had joined
    join()

    assert sum(isinstance(finder, JoiningFinder) for finder in sys.meta_path) == 2
    assert found_in(CHECKS) == ["lmcache_core_checks"]
    assert list(importlib.import_module(CHECKS).__path__).count(JOINED[CHECKS]) == 1
    uninstall()
    assert (is_joined(), found_in(CHECKS)) == (False, [])


@pytest.mark.filterwarnings("ignore:.*find_spec.. not found:ImportWarning")
def test_a_finder_of_the_old_protocol_is_passed_over(lmcache_at) -> None:
    class Old:
        """Has no find_spec; up to Python 3.11 it is asked in its own way, then not at all."""

        def find_module(self, fullname: str, path: object = None) -> None:
            del fullname, path

    lmcache_at("0.5.6")
    old = Old()
    install()
    sys.meta_path.insert(1, old)  # type: ignore[arg-type]
    try:
        assert found_in(CHECKS) == ["lmcache_core_checks"]
    finally:
        sys.meta_path.remove(old)  # type: ignore[arg-type]


def test_uninstalling_undoes_it(lmcache_at, caplog) -> None:
    lmcache_at("0.5.6")
    before = list(sys.meta_path)
    install()
    found_in(CHECKS)

    assert (uninstall(), is_joined(), sys.meta_path == before) == (True, False, True)
    assert (found_in(CHECKS), found_in(CONNECTORS)) == ([], [])
    assert caplog.messages[-1] == f"lmcache-core {__version__} left lmcache"


def test_uninstalling_what_is_not_joined_says_nothing(caplog) -> None:
    assert (uninstall(), caplog.messages) == (False, [])


def test_it_can_be_joined_again(lmcache_at) -> None:
    lmcache_at("0.5.6")
    install()
    uninstall()
    install()

    assert found_in(CHECKS) == ["lmcache_core_checks"]
