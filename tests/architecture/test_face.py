"""The package's face: light to import, complete, and typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tomli

import lmcache_core

HEAVY = ("torch", "redis", "pydantic", "rich", "click", "prometheus_client", "pluggy", "numpy")


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules that a fresh interpreter has imported after running something."""
    script = f"import sys\n{arguments[0]}\nprint(*sorted(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_costs_next_to_nothing() -> None:
    assert modules_after("import lmcache_core") & set(HEAVY) == set()


@pytest.mark.parametrize("name", sorted(set(lmcache_core.__all__) - {"CacheManager"}))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(lmcache_core, name) is not None


def test_the_cache_manager_is_there() -> None:
    assert lmcache_core.CacheManager.__name__ == "CacheManager"


def test_public_names_are_sorted_and_listed() -> None:
    assert list(lmcache_core.__all__) == sorted(set(lmcache_core.__all__)) == dir(lmcache_core)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = lmcache_core.CacheManger
    assert str(caught.value) == "module 'lmcache_core' has no attribute 'CacheManger'"


def test_the_contracts_need_no_optional_library() -> None:
    everything = "import lmcache_core as c; [getattr(c, n) for n in c.__all__ if n != 'CacheManager']"
    assert modules_after(everything) & {"torch", "redis", "transformers", "starlette", "uvicorn", "yaml"} == set()


def test_both_packages_are_typed(root: Path) -> None:
    assert (root / "core/lmcache_core/py.typed").is_file()
    assert (root / "plugins/lmcache_plugins/py.typed").is_file()


def test_version_is_the_distributions(root: Path) -> None:
    metadata = tomli.loads((root / "pyproject.toml").read_text())

    assert lmcache_core.__version__ == metadata["project"]["version"]
