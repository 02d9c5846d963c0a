"""One session with one server, from its welcome to the death of either side."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from lmcache_core.access.format import ChunkFormat
from lmcache_core.client.failures import ServerConfusedError
from lmcache_core.client.lifeline import DIED, Lifeline
from lmcache_core.client.shared_arena import SharedArena
from lmcache_core.client.sockets import SocketPool
from lmcache_core.wire.messages import Bye


class LeaseCount:
    """Leases in use, so that an orderly end can wait for them. Any thread."""

    def __init__(self) -> None:
        self._leases = 0
        self._changed = threading.Condition()

    def enter(self) -> None:
        """Count one more."""
        with self._changed:
            self._leases += 1

    def leave(self) -> None:
        """Count one less."""
        with self._changed:
            self._leases -= 1
            self._changed.notify_all()

    def wait_for_none(self, timeout_s: float) -> bool:
        """Wait until nobody copies any more; False when it takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._leases == 0, timeout_s)


@dataclass(frozen=True, eq=False, kw_only=True)
class Session:
    """What one welcome and one registration gave. Any thread.

    Whoever copies from or to the arena holds the session, and with it the map and the lifeline.

    Attributes:
        number: Of the session, at the server.
        boot_id: Of the server's process.
        version: Of the server.
        registration: Number of the registration.
        chunk_format: How chunks are cut.
        arena: Shared memory; None where the server lends no blocks.
        lifeline: None where the server has none.
        pool: Sockets.
        leases: Blocks in use here.
    """

    number: int
    boot_id: str
    version: str
    registration: int
    chunk_format: ChunkFormat
    arena: SharedArena | None
    lifeline: Lifeline | None
    pool: SocketPool
    leases: LeaseCount = field(default_factory=LeaseCount)

    def views(self, offsets: tuple[int, ...]) -> list[memoryview]:
        """Give the payloads of blocks. Raises ServerConfusedError for a block that cannot be."""
        codec = self.chunk_format.codec
        if self.arena is None:
            if offsets:
                raise ServerConfusedError("the cache server gave blocks of an arena that it did not hand out")
            return []
        return self.arena.views(offsets, codec.frame_bytes, codec.frame_bytes - codec.payload_bytes)

    def servers_end(self) -> str:
        """Say how the server ended, of which nothing can be had any more."""
        return (self.lifeline.end() if self.lifeline is not None else "") or DIED

    def end(self) -> None:
        """Forget the sockets; the map and the lifeline go with their last user."""
        self.pool.close()

    def disown(self) -> None:
        """In a forked child: close what would keep the parent's session alive, and touch nothing else."""
        self.pool.disown()
        if self.lifeline is not None:
            self.lifeline.let_go()

    def leave(self, timeout_s: float) -> bool:
        """Say good-bye once nobody copies any more.

        Returns:
            False when somebody still does: then nothing is said, and the server learns it from the lifeline.
        """
        idle = self.leases.wait_for_none(timeout_s)
        self.pool.close(Bye(self.number) if idle else None)
        return idle
