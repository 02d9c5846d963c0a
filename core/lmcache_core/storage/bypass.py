"""Who holds a backend out of live traffic, and why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hold:
    """One owner's hold on a backend.

    Attributes:
        reason: One sentence; ``""`` for none.
        reads: Whether lookups and loads leave the backend out.
        writes: Whether stores leave it out.
    """

    reason: str
    reads: bool
    writes: bool


class Bypass:
    """Holds by owner: each is ended by its owner alone, so that a recovery never undoes an operator's bypass.

    `reads` and `writes` are plain attributes, for the data path. Any thread.

    Args:
        on_change: Told, under no lock, whether anything is held now.
    """

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._holds: dict[str, Hold] = {}
        self.reads = False
        self.writes = False

    def hold(self, owner: str, hold: Hold) -> None:
        """Add or replace an owner's hold."""
        with self._lock:
            self._holds[owner] = hold
            self._settle()
        self._on_change(self.reads or self.writes)

    def release(self, owner: str) -> bool:
        """End an owner's hold; False if there is none."""
        with self._lock:
            found = self._holds.pop(owner, None) is not None
            self._settle()
        self._on_change(self.reads or self.writes)
        return found

    def holds(self) -> dict[str, Hold]:
        """All holds, by owner."""
        with self._lock:
            return dict(self._holds)

    def _settle(self) -> None:
        self.reads = any(hold.reads for hold in self._holds.values())
        self.writes = any(hold.writes for hold in self._holds.values())
