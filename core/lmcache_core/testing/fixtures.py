"""Fixtures for tests of plugins and of engines: ``pytest_plugins = ["lmcache_core.testing.fixtures"]``.

Not an entry point of pytest: that would be imported by every run of pytest in the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from lmcache_core.contracts.storage import StorageBackend
from lmcache_core.testing.fault_proxy import FaultProxy
from lmcache_core.testing.faulty_backend import FaultyBackend


class MakeFaultProxy(Protocol):
    """Type of fixture `fault_proxy`."""

    def __call__(self, *, to: tuple[str, int], seed: int = 0) -> FaultProxy:
        """Start a proxy on a free port of loopback; see `FaultProxy`."""


class MakeFaultyBackend(Protocol):
    """Type of fixture `faulty_backend`."""

    def __call__(self, backend: StorageBackend, *, seed: int = 0) -> FaultyBackend:
        """Put a faulty store around a store; see `FaultyBackend`."""


@pytest.fixture
def fault_proxy() -> Iterator[MakeFaultProxy]:
    """Makes started proxies; they stop when the test ends."""
    with ExitStack() as stack:

        def make(*, to: tuple[str, int], seed: int = 0) -> FaultProxy:
            return stack.enter_context(FaultProxy(to=to, seed=seed))

        yield make


@pytest.fixture
def faulty_backend() -> Iterator[MakeFaultyBackend]:
    """Makes faulty stores; they are closed, and what hangs goes on, when the test ends."""
    with ExitStack() as stack:

        def make(backend: StorageBackend, *, seed: int = 0) -> FaultyBackend:
            made = FaultyBackend(backend, seed=seed)
            stack.callback(made.close)
            return made

        yield make
