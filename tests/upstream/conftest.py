"""LMCache itself, on a CPU. Only for `make test-upstream`: in the other environment there is no LMCache."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.upstream.plugin_dist import PluginDist

# `make test` runs this folder by itself, with LMCache; where there is none, nothing here can be imported.
collect_ignore_glob = [] if importlib.util.find_spec("lmcache") else ["test_*.py"]

QUIET = {
    "LMCACHE_TRACK_USAGE": "false",
    "DO_NOT_TRACK": "1",
    "LMCACHE_DISABLE_BANNER": "1",
    "LMCACHE_LOG_LEVEL": "WARNING",
}
BESIDE_LMCACHE = importlib.util.find_spec("lmcache") is not None  # pytest reads this file in the other environment too
EXIT_STATUS = pytest.StashKey[int]()
if BESIDE_LMCACHE:  # before it is imported
    os.environ.update(QUIET)

NUMBER = itertools.count(1)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[EXIT_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End at once: LMCache's event loops and loggers are no daemons, and an interpreter would wait for them for ever."""
    if BESIDE_LMCACHE:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash.get(EXIT_STATUS, 1))


def wait_until(true: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine, and no file in the folder where the tests run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LMCACHE_EXTRA")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def joined() -> Iterator[None]:
    """LMCache joined for one test."""
    from lmcache_plugins.upstream import install, uninstall

    assert install()
    yield
    uninstall()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PluginDist:
    """A third party's distribution with one plugin, whose checks a test writes."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return PluginDist(tmp_path / "site")


@pytest.fixture
def lmcache_of() -> Iterator[Callable[..., Any]]:
    """Start an engine of LMCache with its health monitor; stopped at the end."""
    from tests.upstream.engine import Engine

    engines: list[Engine] = []

    def start(**config: Any) -> Engine:
        engines.append(Engine(f"test-{os.getpid()}-{next(NUMBER)}", **config))
        return engines[-1]

    yield start
    for engine in engines:
        engine.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of LMCache, which leaves event loops open, and of what it imports are not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for kind in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
