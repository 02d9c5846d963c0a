"""Lookup, Forsake, Release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lmcache_core.access.local import LocalAccess
from lmcache_core.server.desk import Handler, Holdings
from lmcache_core.server.gate import Gate, registered
from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.server.session import Session
from lmcache_core.server.slow import SlowCall
from lmcache_core.storage.run import ChunkRun
from lmcache_core.storage.run import Found as Finding
from lmcache_core.wire.messages import Done, Forsake, Found, Lookup, Message, RefusalCode, Release
from lmcache_core.workers import WorkerPool

_MOST_TOKENS = 1 << 40


class LookupCalls:
    """Counts and promises leading chunks.

    What tier 0 alone can answer is answered at once; the rest waits elsewhere.

    Args:
        holdings: Shared with the other handlers.
        gate: Says when nothing is served.
        pool: Where calls wait for further tiers.
    """

    def __init__(self, holdings: Holdings, gate: Gate, pool: WorkerPool) -> None:
        self._holdings = holdings
        self._gate = gate
        self._pool = pool

    def handlers(self) -> Mapping[type[Any], Handler]:
        """Say what this serves."""
        return {Lookup: self._lookup, Forsake: self._forsake, Release: self._release}

    def _lookup(self, session: Session, message: Lookup, sender: bytes) -> Message | None:
        self._gate.check_healthy()
        registration = registered(session, message.registration, message.request_id)
        if not 0 <= message.requested_tokens <= _MOST_TOKENS:
            raise RefusedCallError(RefusalCode.MALFORMED, f"requested_tokens is {message.requested_tokens}")
        runs = registration.runs(message.salt_hash, message.variant_hash, message.digests, message.rest_tokens)
        access = registration.access
        tokens = message.requested_tokens
        found = access.lookup_resident(runs, message.request_id, requested_tokens=tokens)
        if found is not None:
            return self._found(session.number, message, access, runs, found)
        ask = partial(
            access.prefetch if message.prefetch else access.lookup,
            runs,
            message.request_id,
            requested_tokens=tokens,
            deadline=self._gate.deadline(message.timeout_s),
        )
        slow = SlowCall(
            session=session.number,
            call=message.call,
            operation="lookup",
            sender=sender,
            began_s=session.seen_s,
            finish=lambda found: self._found(session.number, message, access, runs, found),
            undo=lambda found: access.forsake(runs, message.request_id, found),
        )
        if message.prefetch:
            self._begin_prefetch(slow, ask)
        else:
            self._holdings.slow.begin(slow, self._pool, ask)
        return None

    def _begin_prefetch(self, slow: SlowCall, ask: partial[Any]) -> None:
        def start() -> None:
            pending = ask()
            slow.cancel = pending.cancel
            pending.add_done_callback(lambda done: self._holdings.slow.report(slow, partial(done.result, 0.0)))

        self._holdings.slow.begin_by(slow, start)

    def _found(
        self, session: int, message: Lookup, access: LocalAccess, runs: Sequence[ChunkRun], found: Finding
    ) -> Message:
        self._holdings.promises.note(
            session=session,
            call=message.call,
            access=access,
            runs=runs,
            request_id=message.request_id,
            found=found,
        )
        return Found(message.call, found.chunks, found.l1_chunks)

    def _forsake(self, session: Session, message: Forsake, _sender: bytes) -> None:
        call = message.lookup_call
        if self._holdings.slow.drop(session.number, call) or self._holdings.promises.forsake(session.number, call):
            return
        session.abandon(session.lease_of(call))

    def _release(self, session: Session, message: Release, _sender: bytes) -> Message:
        registration = registered(session, message.registration, message.request_id)
        runs = registration.runs(message.salt_hash, message.variant_hash, message.digests)
        released = registration.access.release(runs, message.request_id)
        for run in runs:
            self._holdings.promises.taken(run, message.request_id)
        return Done(message.call, int(released))
