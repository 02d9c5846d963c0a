"""What one client holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lmcache_core.access.chunk_access import Reservation
from lmcache_core.access.local import LocalAccess
from lmcache_core.memory.lease import Lease
from lmcache_core.server.promises import PromiseLedger
from lmcache_core.server.registration import Registration, RegistrationBook
from lmcache_core.server.slow import SlowCalls
from lmcache_core.storage.run import ChunkRun

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Filling:
    """Blocks that the client fills."""

    call: int
    began_s: float
    access: LocalAccess
    reservation: Reservation
    request_id: str

    @property
    def blocks(self) -> int:
        """How many."""
        return len(self.reservation.places)

    @property
    def leased_bytes(self) -> int:
        """Bytes of the arena in them."""
        return self.blocks * self.reservation.run.codec.frame_bytes


@dataclass(slots=True, eq=False)
class Reading:
    """Blocks that the client reads."""

    call: int
    began_s: float
    access: LocalAccess
    lease: Lease
    run: ChunkRun
    request_id: str
    skip_chunks: int

    @property
    def blocks(self) -> int:
        """How many."""
        return len(self.lease.blocks)

    @property
    def leased_bytes(self) -> int:
        """Bytes of the arena in them."""
        return self.blocks * self.run.codec.frame_bytes


@dataclass(slots=True, eq=False)
class Session:
    """One client's. Changed by the control thread alone; others may read what `describe` gives.

    Attributes:
        number: Secret of the client's: whoever knows it speaks for it.
        ordinal: Number to show.
        name: As the client calls itself.
        pid: As it says; its own view, where it runs in a container.
        opened_s: Monotonic seconds.
        seen_s: When its last message came.
        plugins: Digest of those in force in the client; ``""`` where it did not say.
        messages: So many of them since it was opened.
        refused: So many of these were refused at once.
        registrations: By number.
        fillings: By lease.
        readings: By lease.
    """

    number: int
    ordinal: int
    name: str
    pid: int
    opened_s: float
    seen_s: float
    plugins: str = ""
    messages: int = 0
    refused: int = 0
    registrations: dict[int, Registration] = field(default_factory=dict)
    fillings: dict[int, Filling] = field(default_factory=dict)
    readings: dict[int, Reading] = field(default_factory=dict)

    def lease_of(self, call: int) -> int:
        """Find the lease that a call got; 0 for none."""
        for held in (self.fillings, self.readings):
            for lease, one in held.items():
                if one.call == call:
                    return lease
        return 0

    def abandon(self, lease: int) -> int:
        """Take back the blocks of a lease, none of them used; give how many, -1 for no such lease."""
        filling = self.fillings.pop(lease, None)
        if filling is not None:
            filling.access.abandon(filling.reservation)
            return filling.blocks
        reading = self.readings.pop(lease, None)
        if reading is not None:
            blocks = reading.blocks
            reading.lease.release()
            return blocks
        return -1

    def end(self, promises: PromiseLedger, book: RegistrationBook, slow: SlowCalls) -> int:
        """Free everything, once; give how many blocks that were.

        One part that fails is logged and keeps no other from being freed.
        """
        freed = 0
        _guarded(slow.drop_all, self.number)
        for lease in [*self.fillings, *self.readings]:
            freed += max(0, _guarded(self.abandon, lease) or 0)
        _guarded(promises.drop, self.number)
        while self.registrations:
            _guarded(book.leave, self.registrations.popitem()[1])
        return freed

    def describe(self, now_s: float, promises: int, slow_calls: int) -> dict[str, Any]:
        """Tell how it fares, as JSON values."""
        held: list[Filling | Reading] = [*list(self.fillings.values()), *list(self.readings.values())]
        return {
            "session": self.ordinal,
            "name": self.name,
            "pid": self.pid,
            "plugins": self.plugins,
            "age_s": now_s - self.opened_s,
            "idle_s": now_s - self.seen_s,
            "messages": self.messages,
            "refused": self.refused,
            "slow_calls": slow_calls,
            "registrations": [
                {
                    "model_name": one.wish.model_name,
                    "world_size": one.wish.world_size,
                    "ranks": list(one.wish.ranks),
                    "chunk_tokens": one.format.chunk_tokens,
                }
                for one in list(self.registrations.values())
            ],
            "leases": len(held),
            "leased_bytes": sum(one.leased_bytes for one in held),
            "oldest_lease_s": now_s - min(one.began_s for one in held) if held else None,
            "promises": promises,
        }


def _guarded(call: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return call(argument)
    except Exception:  # the border of one part: the rest of a dead client's blocks must come free all the same
        log.exception("a part of an ended session could not be freed")
        return None
