"""Engines over tiers, for the access's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.engine_calls import MakeRig
from tests.memory_store import Rig


@pytest.fixture
def make_rig() -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**changes: object) -> Rig:
        rigs.append(Rig(**changes))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
