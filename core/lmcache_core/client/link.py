"""The connection to a cache server: whether there is one, and how it comes back."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from lmcache_core.access.format import ChunkFormat
from lmcache_core.client.answers import unexpected
from lmcache_core.client.failures import ServerCallError, ServerGoneError, ServerLateError, ServerRefusedError
from lmcache_core.client.greeting import Greeter
from lmcache_core.client.knock import Knock
from lmcache_core.client.lifeline import DIED, ENDED
from lmcache_core.client.session import Session
from lmcache_core.client.sockets import SocketPool
from lmcache_core.client.wish import Wish
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.farewell import STOPPING
from lmcache_core.wire.messages import Answer, Ping, Pong, RefusalCode, Refused

log = logging.getLogger(__name__)

_CLOSED = "the client is closed"
_FINAL = frozenset({RefusalCode.PROTOCOL, RefusalCode.LAYOUT})
"""What the same server will refuse again."""


class ServerLink:
    """The session there is, or the reason why there is none. Any thread.

    Args:
        address: Of the server.
        wish: What to register.
        name: Of this client, for the server's status.
        wake: Called when a session is lost, so that somebody looks for the next.

    Attributes:
        healthy: Whether calls are worth making; read by each call.
        reason: ``""``, or one sentence why not.
        session: None while there is none.
        chunk_format: As the last session had it; None before the first.
    """

    def __init__(
        self,
        address: ServerAddress,
        wish: Wish,
        *,
        name: str,
        wake: Callable[[], None],
    ) -> None:
        self.address = address
        self.healthy = False
        self.reason = f"no cache server has been reached at {address} yet"
        self.session: Session | None = None
        self.chunk_format: ChunkFormat | None = None
        self.next_call = itertools.count(1).__next__
        self._wake = wake
        self._greeter = Greeter(address, wish, name=name, next_call=self.next_call)
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._refusal: ServerRefusedError | None = None
        self._last_end = ""
        self._closed = False

    # -- coming and going -------------------------------------------------------

    def connect(self, deadline: float) -> Session:
        """Give the session, opening one if there is none. Raises a `ServerCallError`, at once if nobody listens."""
        if not self._connecting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ServerLateError(f"the cache server at {self.address} gave no answer in time")
        try:
            session = self.session
            return self._open(deadline) if session is None else session
        except ServerCallError as error:
            last = f"; the last one {self._last_end}" if self._last_end and isinstance(error, ServerGoneError) else ""
            self._note(None, f"{error}{last}")
            raise
        finally:
            self._connecting.release()

    def try_connect(self, limit_s: float) -> bool:
        """Open a session if there is none; False if none can be had now."""
        with suppress(ServerCallError):
            self.connect(time.monotonic() + limit_s)
        return self.session is not None

    def session_of(self, pool: SocketPool) -> Session | None:
        """Give the session of a pool; None once it is over."""
        session = self.session
        return session if session is not None and session.pool is pool else None

    def lost(self, session: Session, why: str) -> None:
        """A session is over; harmless for one that was over already.

        `healthy` stays until an attempt to connect fails: a server that is back already serves the next call.
        """
        with self._lock:
            if self.session is not session:
                return
            self.session = None
            self.healthy = not self._closed
            self.reason = f"the cache server at {self.address} {why}"
            self._last_end = why if why in {ENDED, DIED} else ""
        log.log(logging.INFO if why == ENDED else logging.WARNING, "%s", self.reason)
        session.end()
        self._wake()

    def close(self, timeout_s: float) -> bool:
        """End for good; False when a copy was still going on after so long."""
        with self._lock:
            self._closed = True
            session, self.session = self.session, None
        self._note(None, _CLOSED)
        return session is None or session.leave(timeout_s)

    def disown(self) -> None:
        """In a forked child: leave the parent's session alone, and be ready for one of our own."""
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        session, self.session = self.session, None
        if session is not None:
            session.disown()
        self.healthy, self.reason = not self._closed, ""

    # -- what was heard ---------------------------------------------------------

    def heard(self, session: Session, answer: Answer) -> None:
        """Take in the answer to a ping."""
        if isinstance(answer, Pong) and answer.session_known and answer.boot_id == session.boot_id:
            self._note(session, answer.reason, healthy=answer.healthy)
        elif isinstance(answer, Pong) or (isinstance(answer, Refused) and answer.code == RefusalCode.SESSION):
            self.lost(session, "has started anew")
        else:
            self._note(session, str(unexpected(answer)))

    def unwell(self, session: Session, why: str) -> None:
        """The server cannot serve now; the next ping tells more."""
        self._note(session, why)

    # -- inside -----------------------------------------------------------------

    def _open(self, deadline: float) -> Session:
        knock = Knock(self.address)
        try:
            self._check_refusal(knock, deadline)
            session = self._greeter.open(knock, deadline)
        except ServerRefusedError as error:
            if error.code in _FINAL:
                self._refusal = error
            raise
        finally:
            knock.close()
        with self._lock:
            if not self._closed:
                self.session, self.chunk_format = session, session.chunk_format
                self._refusal, self._last_end = None, ""
        if self.session is not session:
            session.leave(0.0)
            raise ServerGoneError(_CLOSED)
        self._note(session, "", healthy=True)
        log.info("connected to the cache server %s at %s", session.version, self.address)
        return session

    def _note(self, session: Session | None, reason: str, *, healthy: bool = False) -> None:
        """Change `healthy` and `reason`, of a session as long as that is the one."""
        with self._lock:
            if self.session is not session or (self._closed and reason != _CLOSED):
                return
            changed = (healthy, reason) != (self.healthy, self.reason)
            self.reason, self.healthy = reason, healthy  # in this order: whoever sees the second, sees why
        if changed and reason and not self._closed:
            was_told_to_end = reason == STOPPING or (session is None and self._last_end == ENDED)
            level = logging.INFO if was_told_to_end else logging.WARNING
            log.log(level, "%s; everything is recomputed until it serves again", reason)

    def _check_refusal(self, knock: Knock, deadline: float) -> None:
        """Do not ask the same server again for what it has refused."""
        refusal = self._refusal
        if refusal is None:
            return
        call = self.next_call()
        pool = SocketPool(str(self.address), lifeline=knock)
        try:
            answer = pool.call(Ping(call, 0), call, deadline)
        finally:
            pool.close()
        if isinstance(answer, Pong) and answer.boot_id == refusal.boot_id:
            raise ServerRefusedError(refusal.code, str(refusal), refusal.boot_id)
