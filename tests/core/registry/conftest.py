"""Fake distributions, real ``*.dist-info`` folders, as if they were installed."""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from lmcache_core.registry import PluginRecord, PluginRegistry, load_plugins

DISTS = Path(__file__).parents[2] / "dists"

Install = Callable[..., Sequence[EntryPoint]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put fake distributions on the path; give their entry points, or those named in `only`."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DISTS / "claims"))  # the module that several of them share

    def put(*folders: str, only: Sequence[str] = ()) -> Sequence[EntryPoint]:
        found: list[EntryPoint] = []
        for folder in folders:
            monkeypatch.syspath_prepend(str(DISTS / folder))
            for distribution in distributions(path=[str(DISTS / folder)]):
                found.extend(entry for entry in distribution.entry_points if not only or entry.name in only)
        return found

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("acme_"):
            del sys.modules[name]


@pytest.fixture
def record_of(install: Install) -> Callable[[str, str], PluginRecord]:
    """Load one plugin of one fake distribution and give its record."""

    def load(folder: str, name: str) -> PluginRecord:
        registry = load_plugins(entry_points=install(folder, only=[name]))
        return registry.plugins[0]

    return load


@pytest.fixture
def good(install: Install) -> PluginRegistry:
    """The registry with the one plugin that declares one of everything."""
    return load_plugins(entry_points=install("good"))
