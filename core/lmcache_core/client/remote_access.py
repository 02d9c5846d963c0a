"""Chunks of another process's tiers: control over a socket, payload through shared memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from lmcache_core.access.chunk_access import Reservation
from lmcache_core.access.format import ChunkFormat
from lmcache_core.client import requests
from lmcache_core.client.answers import check_places, expect, read_found
from lmcache_core.client.failures import ServerConfusedError, ServerGoneError
from lmcache_core.client.keeper import ATTEMPT_S, LinkKeeper
from lmcache_core.client.leases import FillLease, ReadLease
from lmcache_core.client.link import ServerLink
from lmcache_core.client.pending import PendingRemote
from lmcache_core.client.requests import MakeRequest
from lmcache_core.client.session import Session
from lmcache_core.client.wish import Wish
from lmcache_core.contracts.cache import Cleared
from lmcache_core.forks import tell_after_fork
from lmcache_core.storage.run import ChunkRun, Found
from lmcache_core.threads import PeriodicThreadRegistry
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.messages import (
    Answer,
    Clear,
    ClearedTiers,
    Commit,
    Done,
    Lent,
    Message,
    RefusalCode,
    Refused,
    Reserved,
    Status,
    StatusReport,
)

_CONTROL_S = 2.0
"""Longest that a release waits for its answer."""

_CLEAR_S = 30.0
_LEAVE_S = 5.0
_LEAST_NUDGE_GAP_S = 0.02
_RESTARTED = frozenset({RefusalCode.SESSION, RefusalCode.REGISTRATION})


class RemoteAccess:
    """A `ChunkAccess` over the wire. Any thread. Looks for the server in the background while there is none.

    Args:
        address: Of the server.
        wish: What to register.
        name: Of this client, for the server's status.
        threads: Where the background thread is entered; None for nowhere.
    """

    def __init__(
        self,
        address: ServerAddress,
        wish: Wish,
        *,
        name: str,
        threads: PeriodicThreadRegistry | None = None,
    ) -> None:
        self.link = ServerLink(address, wish, name=name, wake=self._wake_keeper)
        self._starting = threading.Lock()
        self._keeper: LinkKeeper | None = None
        self._threads = threads
        self._closed = False
        self._nudge_after_s = 0.0
        tell_after_fork(self, RemoteAccess._forked)
        self.link.try_connect(ATTEMPT_S)
        self._start_keeper()

    @property
    def format(self) -> ChunkFormat | None:
        """How chunks are cut and named; None while no server has been reached yet."""
        return self.link.chunk_format

    def is_healthy(self) -> bool:
        """Whether there is a session with a server that serves."""
        return self.link.healthy

    @property
    def reason(self) -> str:
        """``""``, or one sentence why it is not healthy."""
        return self.link.reason

    # -- lookups ----------------------------------------------------------------

    def lookup(self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float) -> Found:
        """Count the leading chunks that every rank can fetch, and hold them for the fetch."""
        message = requests.lookup(
            runs, request_id, requested_tokens=requested_tokens, deadline=deadline, prefetch=False
        )
        return read_found(self._ask(message, deadline, runs)[1], len(runs[0].digests))

    def prefetch(
        self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float
    ) -> PendingRemote:
        """Begin a lookup that also loads what further tiers have."""
        session = self._session(deadline)
        _check_format(session, runs)
        call = self.link.next_call()
        message = requests.lookup(runs, request_id, requested_tokens=requested_tokens, deadline=deadline, prefetch=True)
        most, pool, link = len(runs[0].digests), session.pool, self.link

        def read(answer: Answer) -> Found:
            current = link.session_of(pool)
            if isinstance(answer, Refused) and answer.code in _RESTARTED:
                if current is not None:
                    link.lost(current, "has started anew")
                return self.lookup(runs, request_id, requested_tokens=requested_tokens, deadline=deadline)
            if current is not None:
                self._note_refusal(current, answer)
            return read_found(answer, most)

        return PendingRemote(pool, message(session, call), call, read)

    def release(self, runs: Sequence[ChunkRun], request_id: str) -> bool:
        """Give up a lookup's promise; False if there is none."""
        deadline = time.monotonic() + _CONTROL_S
        answer = self._ask(requests.release(runs, request_id), deadline, runs)[1]
        return expect(Done, answer).count > 0

    # -- stores -----------------------------------------------------------------

    def reserve(self, run: ChunkRun, request_id: str, *, deadline: float) -> Reservation:
        """Lend blocks for the chunks that are neither kept nor being filled by another."""
        session, answer = self._ask(requests.reserve(run, request_id), deadline, (run,))
        reserved = expect(Reserved, answer)
        lease = FillLease(session, reserved.lease)
        try:
            check_places(reserved, len(run.digests))
            return Reservation(run, reserved.places, session.views(reserved.offsets), lease)
        except ServerConfusedError:
            lease.abandon()
            raise

    def commit(self, reservation: Reservation, request_id: str, *, deadline: float) -> int:
        """Keep filled blocks; give how many chunks were kept."""
        del request_id  # the server knows it from the reservation
        lease: FillLease = reservation.handle
        if not lease.lease:
            lease.filled()
            return 0
        try:
            session, call = lease.session, self.link.next_call()
            answer = self._ask_session(session, Commit(call, session.number, lease.lease), call, deadline)
            kept = expect(Done, answer).count
        except BaseException:
            lease.abandon()  # harmless where the commit has arrived
            raise
        lease.filled()
        return min(kept, len(reservation.places))

    def abandon(self, reservation: Reservation) -> None:
        """Take back blocks that will not be filled."""
        lease: FillLease = reservation.handle
        lease.abandon()

    # -- retrieves --------------------------------------------------------------

    def fetch(self, run: ChunkRun, request_id: str, *, skip_chunks: int, deadline: float) -> ReadLease:
        """Give the payloads of the leading chunks behind the skipped ones; valid until the context ends."""
        message = requests.retrieve(run, request_id, skip_chunks=skip_chunks, deadline=deadline)
        session, answer = self._ask(message, deadline, (run,))
        lent = expect(Lent, answer)
        lease = ReadLease(session, lent.lease, lent.offsets)
        if len(lent.offsets) > len(run.digests) - skip_chunks:
            lease.close()
            raise ServerConfusedError(f"the cache server lent {len(lent.offsets)} chunks, more than were asked for")
        return lease

    # -- the whole --------------------------------------------------------------

    def clear(self) -> list[Cleared]:
        """Drop every chunk of the tiers that are the server's own."""
        answer = self._ask(lambda session, call: Clear(call, session.number), time.monotonic() + _CLEAR_S, ())[1]
        return [
            Cleared(backend=backend, chunks=chunks, leased=leased, reason=reason)
            for backend, chunks, leased, reason in expect(ClearedTiers, answer).tiers
        ]

    def status(self) -> bytes:
        """Give the server's whole status, one JSON document. Raises a `ServerCallError`."""
        answer = self._ask(lambda _, call: Status(call), time.monotonic() + _CONTROL_S, ())[1]
        return expect(StatusReport, answer).document

    def nudge(self) -> None:
        """Let the background thread look for the server now, as somebody asks for it; at most every 20 ms."""
        now_s = time.monotonic()
        if now_s >= self._nudge_after_s:
            self._nudge_after_s = now_s + _LEAST_NUDGE_GAP_S
            self._wake_keeper()

    def close(self, timeout_s: float = _LEAVE_S) -> bool:
        """End the session once nobody copies any more; False when somebody still did after so long."""
        with self._starting:
            self._closed = True
            keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        return self.link.close(timeout_s)

    # -- inside -----------------------------------------------------------------

    def _ask(self, message: MakeRequest, deadline: float, runs: Sequence[ChunkRun]) -> tuple[Session, Answer]:
        """Ask; once again in a new session where the server has started anew."""
        session = self._session(deadline)
        answer = self._ask_once(session, message, deadline, runs)
        if isinstance(answer, Refused) and answer.code in _RESTARTED:
            self.link.lost(session, "has started anew")
            session = self.link.connect(deadline)
            answer = self._ask_once(session, message, deadline, runs)
        self._note_refusal(session, answer)
        return session, answer

    def _ask_once(
        self,
        session: Session,
        message: MakeRequest,
        deadline: float,
        runs: Sequence[ChunkRun],
    ) -> Answer:
        _check_format(session, runs)
        call = self.link.next_call()
        return self._ask_session(session, message(session, call), call, deadline)

    def _ask_session(self, session: Session, message: Message, call: int, deadline: float) -> Answer:
        try:
            return session.pool.call(message, call, deadline)
        except ServerGoneError:
            self.link.lost(session, session.servers_end())
            raise

    def _session(self, deadline: float) -> Session:
        session = self.link.session
        if session is None:
            if not self.link.healthy:
                raise ServerGoneError(self.link.reason)
            self._start_keeper()  # there is none yet in a forked child
            session = self.link.connect(min(deadline, time.monotonic() + ATTEMPT_S))
        return session

    def _note_refusal(self, session: Session, answer: Answer) -> None:
        if isinstance(answer, Refused) and answer.code == RefusalCode.UNHEALTHY:
            self.link.unwell(session, answer.message)

    def _start_keeper(self) -> None:
        with self._starting:
            if self._keeper is None and not self._closed:
                self._keeper = LinkKeeper(self.link, self._threads)
                self._keeper.start()

    def _wake_keeper(self) -> None:
        keeper = self._keeper
        if keeper is not None:
            keeper.wake()

    def _forked(self) -> None:
        self._starting = threading.Lock()
        self._keeper = self._threads = None
        self.link.disown()


def _check_format(session: Session, runs: Sequence[ChunkRun]) -> None:
    """A run cut before a restart is of no use to a server that cuts otherwise."""
    for run in runs:
        if run.codec is not session.chunk_format.codec:
            raise ServerGoneError("the cache server has started anew with chunks of another size")
