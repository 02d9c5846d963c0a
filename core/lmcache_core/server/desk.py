"""The one place where requests are judged: which session, which handler, which answer."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from lmcache_core.metrics.server import CallTally, ServerTally
from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.server.promises import PromiseLedger
from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.server.registration import RegistrationBook
from lmcache_core.server.session import Session
from lmcache_core.server.slow import SlowCall, SlowCalls
from lmcache_core.wire.messages import Hello, Message, RefusalCode, Refused, Request

log = logging.getLogger(__name__)

MOST_SESSIONS = 1024
UNATTACHED_TIMEOUT_S = 5.0
"""Longest that a client may take to say anything behind its `Hello`, while it is not on the lifeline."""
SILENT_TIMEOUT_S = 30.0
"""Longest silence of a client that only looks up and is not on the lifeline."""

_SESSION_BITS = 62
_LEAST_LOG_GAP_S = 10.0
_MOST_NAME = 128


class Watcher(Protocol):
    """What a desk needs of the lifeline."""

    def expect(self, session: int) -> bytes:
        """Give a ticket for a session."""

    def is_attached(self, session: int) -> bool:
        """Whether the session's client is known to be alive."""

    def forget(self, session: int) -> None:
        """Close the connection of a session that is over."""


Handler: TypeAlias = Callable[[Session, Any, bytes], Message | None]
"""Serves one kind of request of a session; None where no answer is due, or not yet. The bytes say who asks."""

OpenHandler: TypeAlias = Callable[[Any, bytes], Message | None]
"""Serves one kind of request of anybody."""


@dataclass(slots=True, frozen=True)
class _Service:
    operation: str
    tally: CallTally
    handler: Handler | None
    open_handler: OpenHandler | None


@dataclass(slots=True, kw_only=True)
class Holdings:
    """What all handlers share. For the control thread alone."""

    book: RegistrationBook
    promises: PromiseLedger
    slow: SlowCalls
    watcher: Watcher
    tally: ServerTally
    boot_id: str
    clock: Callable[[], float] = time.monotonic


class Desk:
    """Answers requests, one at a time, on the control thread.

    Whatever a handler raises is an answer: `Refused`, with a sentence that is the client's, or with the
    code ``internal`` and a line in the log here.

    Args:
        holdings: Shared with the handlers.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._clock = holdings.clock
        self._served: dict[type[Any], _Service] = {}
        self.sessions: dict[int, Session] = {}
        self._last_ordinal = 0
        self._log_after_s: dict[str, float] = {}

    def serve(self, handlers: Mapping[type[Any], Handler]) -> None:
        """Add handlers of requests that need a session."""
        for kind, handler in handlers.items():
            operation = kind.__name__.lower()
            self._served[kind] = _Service(operation, self._holdings.tally.of(operation), handler, None)

    def serve_anyone(self, handlers: Mapping[type[Any], OpenHandler]) -> None:
        """Add handlers of requests that need none."""
        for kind, handler in handlers.items():
            operation = kind.__name__.lower()
            self._served[kind] = _Service(operation, self._holdings.tally.of(operation), None, handler)

    # -- requests -----------------------------------------------------------------

    def answer(self, request: Request, sender: bytes, began_s: float) -> Message | None:
        """Serve one request; None where no answer is due, or not yet."""
        service = self._served[type(request)]
        session: Session | None = None
        try:
            if service.handler is None:
                answer = service.open_handler(request, sender)  # type: ignore[misc] # it has one or the other
            else:
                session = self.sessions.get(request.session)  # type: ignore[union-attr] # these kinds have one
                if session is None:
                    return self._refuse(_unknown_session(), getattr(request, "call", None), service.operation, began_s)
                session.seen_s = began_s
                session.messages += 1
                answer = service.handler(session, request, sender)
        except Exception as error:  # noqa: BLE001 - the border of one call: no request may end the control thread
            if session is not None:
                session.refused += 1
            return self._refuse(error, getattr(request, "call", None), service.operation, began_s)
        if answer is not None or not hasattr(request, "call"):
            service.tally.count_ok(self._clock() - began_s)
        return answer

    def settle(self, slow: SlowCall) -> Message | None:
        """Answer a call whose work is over; None where nobody waits any more."""
        forsaken = slow.dropped or (slow.session and slow.session not in self.sessions)
        try:
            result = slow.outcome()
            if forsaken:
                slow.undo(result)
            answer = None if forsaken else slow.finish(result)
        except BaseException as error:  # noqa: BLE001 - the border of one call, whose work ran elsewhere
            if not forsaken:
                return self._refuse(error, slow.call, slow.operation, slow.began_s)
            answer = None
        seconds = self._clock() - slow.began_s
        self._holdings.tally.of(slow.operation).count("forsaken" if forsaken else "ok", seconds)
        return answer

    def _refuse(self, error: BaseException, call: int | None, operation: str, began_s: float) -> Message | None:
        if isinstance(error, RefusedCallError):
            code, sentence, outcome = error.code, error.sentence, "refused"
        else:
            code, sentence, outcome = RefusalCode.INTERNAL, _internal(operation, error), "failed"
            self._log_once(f"{operation} {type(error).__name__}", operation, error)
        self._holdings.tally.of(operation).count(outcome, self._clock() - began_s)
        self._holdings.tally.count_refusal(code)
        return None if call is None else Refused(call, code, sentence, self._holdings.boot_id)

    def _log_once(self, kind: str, operation: str, error: BaseException) -> None:
        now_s = self._holdings.clock()
        if now_s >= self._log_after_s.get(kind, 0.0):
            self._log_after_s[kind] = now_s + _LEAST_LOG_GAP_S
            log.error("%s failed in the server (at most one such line in 10 s)", operation, exc_info=error)

    # -- sessions -------------------------------------------------------------------

    def open(self, hello: Hello) -> Session:
        """Open a session.

        Raises:
            RefusedCallError: Too many are open.
        """
        if len(self.sessions) >= MOST_SESSIONS:
            raise RefusedCallError(RefusalCode.BUSY, f"{MOST_SESSIONS} sessions are open already")
        now_s = self._holdings.clock()
        self._last_ordinal += 1
        session = Session(
            number=secrets.randbits(_SESSION_BITS) | 1,
            ordinal=self._last_ordinal,
            name=hello.name[:_MOST_NAME],
            pid=hello.pid,
            opened_s=now_s,
            seen_s=now_s,
            plugins=PluginSet(hello.plugins).digest,
        )
        self.sessions[session.number] = session
        log.info("session %d: %r, pid %d, has come", session.ordinal, session.name, session.pid)
        return session

    def end(self, number: int, why: str) -> None:
        """End a session and free all that it holds; nothing where there is none."""
        if number in self.sessions:
            self._holdings.watcher.forget(number)
            self._free(number, why)

    def end_all(self, why: str) -> None:
        """End every session but for its lifeline, which tells its client that nothing more will be said."""
        for number in list(self.sessions):
            self._free(number, why)

    def _free(self, number: int, why: str) -> None:
        session, holdings = self.sessions.pop(number), self._holdings
        freed = session.end(holdings.promises, holdings.book, holdings.slow)
        holdings.tally.blocks_freed += freed
        log.info("session %d: %r %s; %d blocks were freed", session.ordinal, session.name, why, freed)

    def take_back(self, lease: int) -> None:
        """Free the blocks of a lease that its client was never told of; nothing where they are free already."""
        for session in self.sessions.values():
            blocks = session.abandon(lease)
            if blocks >= 0:
                self._tell_lost(session, blocks)
                return

    def _tell_lost(self, session: Session, blocks: int) -> None:
        now_s = self._clock()
        if now_s >= self._log_after_s.get("lost", 0.0):
            self._log_after_s["lost"] = now_s + _LEAST_LOG_GAP_S
            log.info(
                "session %d: %r never got an answer; the %d blocks lent in it are taken back "
                "(at most one such line in 10 s)",
                session.ordinal,
                session.name,
                blocks,
            )

    def lease_counts(self) -> tuple[int, int]:
        """Leases that are being filled, and that are being read. Any thread."""
        sessions = list(self.sessions.values())
        return sum(len(one.fillings) for one in sessions), sum(len(one.readings) for one in sessions)

    def describe(self, now_s: float) -> list[dict[str, Any]]:
        """Tell how each session fares, as JSON values. Any thread."""
        sessions = list(self.sessions.values())
        promises, slow = self._holdings.promises, self._holdings.slow
        return [one.describe(now_s, promises.count(one.number), slow.count(one.number)) for one in sessions]

    def tidy(self) -> None:
        """Drop the sessions whose client never came or has fallen silent; strike out old promises."""
        now_s = self._holdings.clock()
        for number, session in list(self.sessions.items()):
            if self._holdings.watcher.is_attached(number):
                continue
            silent_s = now_s - session.seen_s
            limit_s = SILENT_TIMEOUT_S if session.messages else UNATTACHED_TIMEOUT_S
            if silent_s > limit_s:
                self.end(number, f"was silent for {silent_s:.0f} s without a lifeline")
        self._holdings.promises.expire(now_s)


def _unknown_session() -> RefusedCallError:
    return RefusedCallError(RefusalCode.SESSION, "the server does not know this session: it restarted, or ended it")


def _internal(operation: str, error: BaseException) -> str:
    return f"{operation} failed in the server with {type(error).__name__}; its log says more"
