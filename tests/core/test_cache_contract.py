"""The contract of caches, over each of them and each store behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cache_stage import CHUNK_TOKENS, InProcess, MakeStage, OverTheWire, Stage
from tests.core.cache_contract import KVCacheContract
from tests.core.rest_contract import RestContract
from tests.core.skip_contract import SkipContract
from tests.redis_server import RedisServer


@dataclass(frozen=True)
class Store:
    """A store behind tier 0.

    Attributes:
        folder: Where it keeps files; None for none.
        overrides: What configures it, the folder given.
    """

    folder: Path | None
    overrides: Callable[[Path | None], dict[str, Any]]

    def another(self) -> tuple[dict[str, Any], Path | None]:
        """Configure it with a folder of its own, as two caches cannot share the disk tier's."""
        folder = None if self.folder is None else Path(tempfile.mkdtemp(dir=self.folder))
        return self.overrides(folder), folder


@pytest.fixture(scope="module", params=["memory", "file", "disk", "redis"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    if request.param == "memory":
        yield Store(None, lambda _: {})
    elif request.param == "file":
        yield Store(folder, lambda own: {"remote_url": f"file://{own}"})
    elif request.param == "disk":
        yield Store(folder, lambda own: {"local_disk": str(own), "max_local_disk_size": 0.05})
    else:
        with RedisServer() as redis:
            yield Store(None, lambda _: {"remote_url": redis.unix_url})
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def has_store(store: Store) -> bool:
    return bool(store.overrides(store.folder))


def make(request: pytest.FixtureRequest, store: Store, overrides: dict[str, Any]) -> Stage:
    behind, folder = store.another()
    settings = {"chunk_size": CHUNK_TOKENS, "max_local_cpu_size": 0.05, **behind, **overrides}
    stage: Stage = request.cls.kind(**settings)
    stage.folder = folder
    return stage


@pytest.fixture(scope="class")
def stage(request: pytest.FixtureRequest, store: Store) -> Iterator[Stage]:
    """One for all tests of a class and a store."""
    with closing(make(request, store, {})) as stage:
        yield stage


@pytest.fixture
def make_stage(request: pytest.FixtureRequest, store: Store) -> Iterator[MakeStage]:
    """For tests that need another configuration."""
    with ExitStack() as stack:
        yield lambda **overrides: stack.enter_context(closing(make(request, store, overrides)))


class TestCacheEngine(KVCacheContract, RestContract, SkipContract):
    """In this process."""

    kind = InProcess


class TestCacheClient(KVCacheContract, RestContract, SkipContract):
    """In a server's."""

    kind = OverTheWire
