"""The thread that keeps the connection to a cache server, or looks for the server."""

from __future__ import annotations

import os
import select
import time

from lmcache_core.client.failures import ServerCallError, ServerGoneError, ServerLateError
from lmcache_core.client.lifeline import Lifeline
from lmcache_core.client.link import ServerLink
from lmcache_core.client.session import Session
from lmcache_core.client.sockets import SocketPool
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary
from lmcache_core.wire.messages import Answer, Ping

PING_S = 1.0
"""Between two pings; LMCache's heartbeat is slower, but there a lost server is not noticed by its lifeline."""

SILENT_S = 3.0
"""A ping unanswered for so long makes the cache unhealthy."""

ATTEMPT_S = 1.0
"""Longest that one attempt to connect takes."""

_FIRST_RETRY_S = 0.02
_LAST_RETRY_S = 0.1
_SLICE_S = 0.25
"""How soon a wait notices that the thread shall stop."""

_MAPPING_S = 0.05
_MAPPING_PAUSE_S = 0.01


class LinkKeeper(PeriodicThread):
    """Pings, notices a server's death at once, reconnects, and throws away late answers.

    Args:
        link: Of the client.
        registry: Of the client's threads; None for none.
    """

    def __init__(self, link: ServerLink, registry: PeriodicThreadRegistry | None = None) -> None:
        super().__init__("lmcache-client-keeper", PING_S, ThreadLevel.HIGH, registry=registry)
        self._link = link
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._retry_s = _FIRST_RETRY_S
        self._next_ping_s = 0.0

    def __del__(self) -> None:
        os.close(self._bell)

    def wake(self) -> None:
        """Look now instead of at the end of the wait."""
        super().wake()
        os.eventfd_write(self._bell, 1)

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Ask it to end and wait at most so long."""
        self._stopping.set()
        self.wake()
        return super().stop(timeout_s)

    def _next_wait_s(self) -> float:
        return 0.0  # `_execute` waits itself, for more than an event

    def _execute(self) -> ThreadRunSummary:
        session = self._link.session
        if session is None:
            return self._look()
        wait_s, pool, lifeline, number = self._map(session), session.pool, session.lifeline, session.number
        del session  # a child forked during the wait would keep the arena mapped with this frame
        end = self._wait(wait_s, lifeline)
        if end:
            self._lose(pool, end)
            return ThreadRunSummary(success=False, message=f"the server {end}")
        pool.drain()
        if time.monotonic() >= self._next_ping_s and not self.stop_requested:
            self._ping(pool, number)
            self._next_ping_s = time.monotonic() + PING_S
        return ThreadRunSummary(success=self._link.healthy, message=self._link.reason)

    def _look(self) -> ThreadRunSummary:
        """Look for a server, ever less often while there is none."""
        if not self.stop_requested and not self._link.try_connect(ATTEMPT_S):
            self._wait(self._retry_s, None)
            self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)
        else:
            self._retry_s = _FIRST_RETRY_S
        return ThreadRunSummary(success=self._link.healthy, message=self._link.reason)

    def _map(self, session: Session) -> float:
        """Map some of the arena; give the seconds to wait afterwards."""
        more = session.arena is not None and session.arena.map_more(_MAPPING_S)
        left_s = max(0.0, self._next_ping_s - time.monotonic())
        return min(_MAPPING_PAUSE_S, left_s) if more else left_s

    def _wait(self, wait_s: float, lifeline: Lifeline | None) -> str:
        """Sleep until there is something to do; say how the server ended where that is it."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if lifeline is not None:
            poll.register(lifeline.fd, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(wait_s * 1000)]
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return lifeline.end() if lifeline is not None and lifeline.fd in ready else ""

    def _ping(self, pool: SocketPool, session: int) -> None:
        try:
            answer = self._pong(pool, session)
        except ServerGoneError:
            self._lose(pool)
        except ServerLateError:
            self._silent(pool)
        except ServerCallError as error:
            self._doubt(pool, str(error))
        else:
            current = self._link.session_of(pool)
            if answer is not None and current is not None:
                self._link.heard(current, answer)

    def _pong(self, pool: SocketPool, session: int) -> Answer | None:
        """Ping and wait; None when the thread shall stop."""
        call = self._link.next_call()
        silent_at = time.monotonic() + SILENT_S
        with pool.lend() as socket:
            socket.send(Ping(call, session), call)
            while not self.stop_requested:
                answer = socket.peek(call)
                if answer is not None:
                    return answer
                if not socket.has_input(_SLICE_S) and time.monotonic() >= silent_at:
                    raise ServerLateError("the cache server gave no answer in time")
        return None

    def _silent(self, pool: SocketPool) -> None:
        current = self._link.session_of(pool)
        if current is not None and current.lifeline is None:
            self._lose(pool, f"has not answered for {SILENT_S:.0f} s")
        else:  # it lives, so whatever it lent us is still lent
            self._doubt(pool, f"the cache server at {self._link.address} has not answered for {SILENT_S:.0f} s")

    def _doubt(self, pool: SocketPool, why: str) -> None:
        current = self._link.session_of(pool)
        if current is not None:
            self._link.unwell(current, why)

    def _lose(self, pool: SocketPool, why: str = "") -> None:
        self._retry_s = _FIRST_RETRY_S
        current = self._link.session_of(pool)
        if current is not None:
            self._link.lost(current, why or current.servers_end())
