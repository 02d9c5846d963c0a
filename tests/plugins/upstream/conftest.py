"""An LMCache that is nothing but the packages which are joined."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lmcache_plugins.upstream import uninstall
from lmcache_plugins.upstream.join import JOINED


@pytest.fixture
def lmcache_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a package called lmcache on the path; whatever is joined or imported of it is undone."""

    def put(version: str, packages: tuple[str, ...] = tuple(JOINED)) -> None:
        site = tmp_path / "site"
        (site / "lmcache").mkdir(parents=True)
        (site / "lmcache/__init__.py").touch()
        for name in packages:
            folder = site
            for part in name.split("."):
                folder /= part
                folder.mkdir(exist_ok=True)
                (folder / "__init__.py").touch()
        info = site / f"lmcache-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lmcache\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()

    yield put
    uninstall()
    for name in [name for name in sys.modules if name.split(".")[0] == "lmcache"]:
        del sys.modules[name]
