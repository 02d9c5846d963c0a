"""The right to read blocks until released or expired."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lmcache_core.memory.arena import Arena, Block

PlanT = TypeVar("PlanT")


class Lease:
    """References to blocks, given back exactly once however often `release` is called. Any thread."""

    __slots__ = ("_arena", "_blocks", "_lock")

    def __init__(self, arena: Arena, blocks: Sequence[Block]) -> None:
        """Take over one reference of each block; the caller's reference becomes the lease's."""
        self._arena = arena
        self._blocks: Sequence[Block] = blocks
        self._lock = threading.Lock()

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks; empty once released."""
        return self._blocks

    def release(self) -> None:
        """Give the blocks back."""
        self._arena.release(self.take())

    def take(self) -> Sequence[Block]:
        """Hand the references over to the caller; the lease is over. Empty the second time."""
        with self._lock:
            blocks, self._blocks = self._blocks, ()
        return blocks


@dataclass(frozen=True, eq=False)
class Promise(Generic[PlanT]):
    """What a lookup said it would deliver.

    Attributes:
        lease: Blocks of tier 0 it holds for the retrieve.
        plan: Where the rest is.
        expires_at: On the clock of the table.
    """

    lease: Lease
    plan: PlanT
    expires_at: float = field(default=0.0)


class PromiseTable(Generic[PlanT]):
    """Promises of lookups that no retrieve has come for yet, by request.

    Args:
        ttl_s: Seconds a promise is kept, above 0.
        clock: Monotonic seconds.
    """

    def __init__(self, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._by_request: dict[Hashable, deque[Promise[PlanT]]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(waiting) for waiting in self._by_request.values())

    def add(self, request: Hashable, lease: Lease, plan: PlanT) -> Promise[PlanT]:
        """Keep a promise; several of one request wait in line."""
        promise = Promise(lease, plan, self._clock() + self._ttl_s)
        with self._lock:
            self._by_request.setdefault(request, deque()).append(promise)
        return promise

    def take(self, request: Hashable) -> Promise[PlanT] | None:
        """Hand over the oldest promise of a request; the caller releases its lease."""
        with self._lock:
            waiting = self._by_request.get(request)
            if waiting is None:
                return None
            promise = waiting.popleft()
            if not waiting:
                del self._by_request[request]
            return promise

    def plan_of(self, request: Hashable) -> PlanT | None:
        """Give the plan of the promise that `take` would hand over; None if there is none."""
        with self._lock:
            waiting = self._by_request.get(request)
            return waiting[0].plan if waiting else None

    def discard(self, request: Hashable, promise: Promise[PlanT]) -> bool:
        """Release one promise if nobody has taken it yet; False if somebody has."""
        with self._lock:
            waiting = self._by_request.get(request)
            if waiting is None or promise not in waiting:
                return False
            waiting.remove(promise)
            if not waiting:
                del self._by_request[request]
        promise.lease.release()
        return True

    def expire(self) -> list[tuple[Hashable, PlanT]]:
        """Release the promises that nobody came for in time; give their requests and plans."""
        now = self._clock()
        overdue: list[tuple[Hashable, Promise[PlanT]]] = []
        with self._lock:
            for request, waiting in list(self._by_request.items()):
                while waiting and waiting[0].expires_at <= now:
                    overdue.append((request, waiting.popleft()))
                if not waiting:
                    del self._by_request[request]
        for _, promise in overdue:
            promise.lease.release()
        return [(request, promise.plan) for request, promise in overdue]

    def overdue_s(self) -> float:
        """For how long the oldest promise has been past its time; 0 where none is."""
        with self._lock:
            ends = [waiting[0].expires_at for waiting in self._by_request.values()]
        return max(0.0, self._clock() - min(ends)) if ends else 0.0

    def drop_all(self) -> None:
        """Release every promise, at shutdown."""
        with self._lock:
            left = [promise for waiting in self._by_request.values() for promise in waiting]
            self._by_request.clear()
        for promise in left:
            promise.lease.release()
