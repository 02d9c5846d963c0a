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
        draining: Nothing new is taken for it; what waits to be written is written.
    """

    reason: str
    reads: bool
    writes: bool
    draining: bool = False


class Bypass:
    """Holds by owner: each is ended by its owner alone, so that a recovery never undoes an operator's bypass.

    `reads`, `writes` and `offers` are plain attributes, for the data path. Any thread.

    Attributes:
        reads: Whether lookups and loads are left out.
        writes: Whether stores are.
        offers: Whether no new chunk is queued for writing: writes are left out, or the backend is draining.

    Args:
        on_change: Told, in order, whether anything is held now; under the lock, so it must not block or call back.
    """

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._holds: dict[str, Hold] = {}
        self.reads = False
        self.writes = False
        self.offers = False

    def hold(self, owner: str, hold: Hold) -> None:
        """Add or replace an owner's hold."""
        with self._lock:
            self._holds[owner] = hold
            self._settle()

    def release(self, owner: str) -> bool:
        """End an owner's hold; False if there is none."""
        with self._lock:
            found = self._holds.pop(owner, None) is not None
            self._settle()
        return found

    def holds(self) -> dict[str, Hold]:
        """All holds, by owner."""
        with self._lock:
            return dict(self._holds)

    def _settle(self) -> None:
        self.reads = any(hold.reads for hold in self._holds.values())
        self.writes = any(hold.writes for hold in self._holds.values())
        self.offers = any(hold.writes or hold.draining for hold in self._holds.values())
        self._on_change(self.reads or self.offers)
