"""Reserve, Commit, Abandon, Retrieve, Return."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from lmcache_core.access.local import PAST, LocalAccess
from lmcache_core.memory.lease import Lease
from lmcache_core.server.desk import Handler, Holdings
from lmcache_core.server.gate import Gate, registered
from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.server.session import Filling, Reading, Session
from lmcache_core.server.slow import SlowCall
from lmcache_core.storage.run import ChunkRun
from lmcache_core.wire.messages import (
    Abandon,
    Commit,
    Done,
    Lent,
    Message,
    RefusalCode,
    Reserve,
    Reserved,
    Retrieve,
    Return,
)
from lmcache_core.workers import WorkerPool


class BlockCalls:
    """Lends blocks of the arena to be filled or read, and takes them back.

    Args:
        holdings: Shared with the other handlers.
        gate: Says when nothing is served.
        pool: Where calls wait for further tiers.
    """

    def __init__(self, holdings: Holdings, gate: Gate, pool: WorkerPool) -> None:
        self._holdings = holdings
        self._gate = gate
        self._pool = pool
        self._leases = itertools.count(1)

    def handlers(self) -> Mapping[type[Any], Handler]:
        """Say what this serves."""
        return {
            Reserve: self._reserve,
            Commit: self._commit,
            Abandon: self._abandon,
            Retrieve: self._retrieve,
            Return: self._return,
        }

    # -- filling ------------------------------------------------------------------

    def _reserve(self, session: Session, message: Reserve, _sender: bytes) -> Message:
        self._gate.check_lending(session)
        self._gate.check_healthy()
        registration = registered(session, message.registration, message.request_id)
        access = registration.access
        run = registration.run(message.salt_hash, message.variant_hash, message.digests, message.rest_tokens)
        reservation = access.reserve(run, message.request_id, deadline=math.inf)
        if not reservation.places:  # all of it is kept, or being filled by another: a store of nothing, done at once
            access.commit(reservation, message.request_id, deadline=math.inf)
            return Reserved(message.call, 0, (), ())
        lease = next(self._leases)
        session.fillings[lease] = Filling(message.call, session.seen_s, access, reservation, message.request_id)
        offsets = tuple([block.offset for block in reservation.handle])
        return Reserved(message.call, lease, tuple(reservation.places), offsets)

    def _commit(self, session: Session, message: Commit, _sender: bytes) -> Message:
        filling = session.fillings.pop(message.lease, None)
        if filling is None:
            raise RefusedCallError(RefusalCode.LEASE, f"the session has no reservation {message.lease}")
        kept = filling.access.commit(filling.reservation, filling.request_id, deadline=math.inf)
        return Done(message.call, kept)

    def _abandon(self, session: Session, message: Abandon, _sender: bytes) -> None:
        filling = session.fillings.pop(message.lease, None)
        if filling is None:
            raise RefusedCallError(RefusalCode.LEASE, f"the session has no reservation {message.lease}")
        filling.access.abandon(filling.reservation)

    # -- reading --------------------------------------------------------------------

    def _retrieve(self, session: Session, message: Retrieve, sender: bytes) -> Message | None:
        self._gate.check_lending(session)
        self._gate.check_healthy()
        registration = registered(session, message.registration, message.request_id)
        access = registration.access
        run = registration.run(message.salt_hash, message.variant_hash, message.digests, message.rest_tokens)
        if not 0 <= message.skip_chunks <= len(run.digests):
            raise RefusedCallError(
                RefusalCode.MALFORMED, f"skip_chunks is {message.skip_chunks} of {len(run.digests)} chunks"
            )
        deadline = self._gate.deadline(message.timeout_s)
        lend = partial(access.lend, run, message.request_id, skip_chunks=message.skip_chunks, deadline=deadline)
        if access.resident((run,), message.request_id):
            return self._lent(session, message, access, run, lend(deadline=PAST))
        slow = SlowCall(
            session=session.number,
            call=message.call,
            operation="retrieve",
            sender=sender,
            began_s=session.seen_s,
            finish=lambda lease: self._lent(session, message, access, run, lease),
            undo=lambda lease: self._give_back(run, message.request_id, lease),
        )
        self._holdings.slow.begin(slow, self._pool, lend)
        return None

    def _lent(self, session: Session, message: Retrieve, access: LocalAccess, run: ChunkRun, lease: Lease) -> Message:
        self._holdings.promises.taken(run, message.request_id)
        if not lease.blocks:
            access.delivered(run, message.request_id, 0, skip_chunks=0)
            return Lent(message.call, 0, ())
        number = next(self._leases)
        session.readings[number] = Reading(
            message.call, session.seen_s, access, lease, run, message.request_id, message.skip_chunks
        )
        return Lent(message.call, number, tuple([block.offset for block in lease.blocks]))

    def _give_back(self, run: ChunkRun, request_id: str, lease: Lease) -> None:
        self._holdings.promises.taken(run, request_id)
        lease.release()

    def _return(self, session: Session, message: Return, _sender: bytes) -> None:
        reading = session.readings.pop(message.lease, None)
        if reading is None:
            raise RefusedCallError(RefusalCode.LEASE, f"the session has no lease {message.lease}")
        delivered = min(max(0, message.delivered_chunks), reading.blocks)
        reading.lease.release()
        reading.access.delivered(reading.run, reading.request_id, delivered, skip_chunks=reading.skip_chunks)
