"""An engine with all parts at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.engine_calls import MakeRig
from tests.memory_store import Rig
from tests.stalled_plugins import StalledPlugins


@pytest.fixture
def make_rig() -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**changes: object) -> Rig:
        rigs.append(Rig(**changes))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> Iterator[StalledPlugins]:
    """Plugins that hang when they are to make something; they are let go at the end."""
    found = StalledPlugins(monkeypatch)
    yield found
    found.forget()
