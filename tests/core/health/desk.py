"""Overrides over real tiers and files, with a wall clock that a test turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.memory_store import Rig

from lmcache_core.health.history import History
from lmcache_core.health.line_file import LineFile
from lmcache_core.health.overrides import Overrides
from lmcache_core.health.state_file import StateFile

BACKEND = "RemoteBackend-0"


class WallClock:
    """Seconds since 1970."""

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Desk:
    """One instance's overrides; a second one on the same folder is that instance after a restart."""

    def __init__(self, folder: Path | None, clock: WallClock | None = None, rig: Rig | None = None) -> None:
        self.rig = rig or Rig()
        self.clock = clock or WallClock()
        self.changes = 0
        self.history = History(self.rig.metrics, wall_clock=self.clock)
        self.state_path = None if folder is None else folder / "cache.overrides.json"
        self.audit_path = None if folder is None else folder / "cache.audit.jsonl"
        self.overrides = Overrides(
            storage=self.rig.storage,
            history=self.history,
            metrics=self.rig.metrics,
            state=None if self.state_path is None else StateFile(self.state_path),
            audit=None if self.audit_path is None else LineFile(self.audit_path),
            on_change=self._changed,
            wall_clock=self.clock,
        )

    def add(self, owner: str = "alice", **how: Any) -> Any:
        order = {"reason": "kernel update", "ttl_s": 60.0, **how}
        return self.overrides.add(BACKEND, owner=owner, **order)

    @property
    def bypass(self) -> Any:
        return self.rig.tiers[0].bypass

    def audit(self) -> list[dict[str, Any]]:
        assert self.audit_path is not None
        return [json.loads(line) for line in self.audit_path.read_text().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.audit()]

    def close(self) -> None:
        self.overrides.close()
        self.rig.close()

    def _changed(self) -> None:
        self.changes += 1
