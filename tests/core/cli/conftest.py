"""A command line in a clean place, with fake distributions on its path."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DISTS = Path(__file__).parents[2] / "dists"


@pytest.fixture(autouse=True)
def clean_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty folder without LMCACHE_* variables."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LMCACHE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def put_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make fake distributions look installed; forget their modules afterwards."""
    before = set(sys.modules)

    def put(*folders: str) -> None:
        for folder in ("claims", *folders):
            monkeypatch.syspath_prepend(str(DISTS / folder))

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("acme_"):
            del sys.modules[name]
