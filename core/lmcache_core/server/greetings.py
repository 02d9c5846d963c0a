"""Hello, Register, Ping, Status, Clear, Bye."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.server.desk import Desk, Handler, Holdings
from lmcache_core.server.gate import Gate
from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.server.session import Session
from lmcache_core.server.slow import SlowCall, SlowCalls
from lmcache_core.version import __version__
from lmcache_core.wire.handshake import BLOCKS, PREFETCH, agree
from lmcache_core.wire.messages import (
    Bye,
    Clear,
    ClearedTiers,
    Hello,
    Message,
    Ping,
    Pong,
    RefusalCode,
    Register,
    Registered,
    Status,
    StatusReport,
    Welcome,
)
from lmcache_core.workers import WorkerPool

_MOST_REGISTRATIONS = 64
"""Of one session; an engine has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a client is told of the server.

    Attributes:
        lifeline: Path of the Unix socket.
        arena_bytes: 0 where there is no shared memory.
        status: Gives the whole status.
        plugins: Those in force in the server.
    """

    lifeline: str
    arena_bytes: int
    status: Callable[[], Mapping[str, Any]]
    plugins: PluginSet


class GreetingCalls:
    """Opens and ends sessions, and answers what is asked about the server as a whole.

    Args:
        holdings: Shared with the other handlers.
        gate: Says when nothing is served.
        desk: Opens sessions.
        place: What a client is told.
        errands: Calls whose work may be slow, but does not wait for chunks.
        pool: Where errands run.
    """

    def __init__(
        self, holdings: Holdings, gate: Gate, *, desk: Desk, place: Place, errands: SlowCalls, pool: WorkerPool
    ) -> None:
        self._holdings = holdings
        self._gate = gate
        self._desk = desk
        self._place = place
        self._errands = errands
        self._pool = pool

    def handlers(self) -> Mapping[type[Any], Handler]:
        """Say what this serves within a session."""
        return {Register: self._register, Clear: self._clear, Bye: self._bye}

    def open_handlers(self) -> Mapping[type[Any], Callable[[Any, bytes], Message | None]]:
        """Say what this serves without one."""
        return {Hello: self._hello, Ping: self._ping, Status: self._status}

    def _hello(self, message: Hello, _sender: bytes) -> Message:
        chosen = agree(message, __version__)
        if isinstance(chosen, str):
            raise RefusedCallError(RefusalCode.PROTOCOL, chosen)
        if self._gate.stopping:
            raise RefusedCallError(RefusalCode.UNHEALTHY, self._gate.reason)
        session = self._desk.open(message)
        return Welcome(
            call=message.call,
            protocol=chosen,
            version=__version__,
            features=(PREFETCH, BLOCKS) if self._gate.lends else (PREFETCH,),
            boot_id=self._holdings.boot_id,
            session=session.number,
            ticket=self._holdings.watcher.expect(session.number),
            lifeline=self._place.lifeline,
            arena_bytes=self._place.arena_bytes,
            plugins=self._place.plugins.entries,
        )

    def _register(self, session: Session, message: Register, _sender: bytes) -> Message:
        if len(session.registrations) >= _MOST_REGISTRATIONS:
            raise RefusedCallError(
                RefusalCode.REGISTRATION, f"the session has {_MOST_REGISTRATIONS} registrations already"
            )
        found = self._holdings.book.enter(message)
        if found.number in session.registrations:
            self._holdings.book.leave(found)  # a session holds each once
        session.registrations[found.number] = found
        chunk_format = found.format
        return Registered(
            message.call,
            found.number,
            chunk_format.chunk_tokens,
            chunk_format.codec.frame_bytes,
            chunk_format.save_unfull_chunk,
        )

    def _ping(self, message: Ping, _sender: bytes) -> Message:
        session = self._desk.sessions.get(message.session)
        if session is not None:
            session.seen_s = self._holdings.clock()
            session.messages += 1
        healthy = self._gate.is_open
        reason = "" if healthy else self._gate.reason
        return Pong(message.call, self._holdings.boot_id, healthy, reason, session is not None)

    def _bye(self, session: Session, _message: Bye, _sender: bytes) -> None:
        if session.fillings or session.readings:
            return  # some thread of the client may still copy; the end of its lifeline says that none does
        self._desk.end(session.number, "has left")

    def _clear(self, session: Session, message: Clear, sender: bytes) -> None:
        self._gate.check_attached(session)
        access = next(iter(session.registrations.values()), None)
        if access is None:
            raise RefusedCallError(RefusalCode.REGISTRATION, "the session has no registration; register first")
        slow = SlowCall(
            session=session.number,
            call=message.call,
            operation="clear",
            sender=sender,
            began_s=session.seen_s,
            finish=lambda cleared: ClearedTiers(
                message.call, tuple([(one.backend, one.chunks, one.leased, one.reason) for one in cleared])
            ),
            undo=lambda _cleared: None,
        )
        self._errands.begin(slow, self._pool, access.access.clear)

    def _status(self, message: Status, sender: bytes) -> None:
        slow = SlowCall(
            session=0,
            call=message.call,
            operation="status",
            sender=sender,
            began_s=self._holdings.clock(),
            finish=lambda document: StatusReport(message.call, document),
            undo=lambda _document: None,
        )
        self._errands.begin(slow, self._pool, lambda: json.dumps(self._place.status()).encode())
