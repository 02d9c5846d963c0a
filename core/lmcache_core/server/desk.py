"""The one place where requests are judged: which session, which handler, which answer."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from lmcache_core.metrics.server import ServerTally
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
        self._handlers: dict[type[Any], tuple[Handler, str]] = {}
        self._open_handlers: dict[type[Any], tuple[Callable[[Any, bytes], Message | None], str]] = {}
        self.sessions: dict[int, Session] = {}
        self._last_ordinal = 0
        self._log_after_s: dict[str, float] = {}

    def serve(self, handlers: Mapping[type[Any], Handler]) -> None:
        """Add handlers of requests that need a session."""
        self._handlers.update({kind: (handler, kind.__name__.lower()) for kind, handler in handlers.items()})

    def serve_anyone(self, handlers: Mapping[type[Any], Callable[[Any, bytes], Message | None]]) -> None:
        """Add handlers of requests that need none."""
        self._open_handlers.update({kind: (handler, kind.__name__.lower()) for kind, handler in handlers.items()})

    # -- requests -----------------------------------------------------------------

    def answer(self, request: Request, sender: bytes, began_s: float) -> Message | None:
        """Serve one request; None where no answer is due, or not yet."""
        kind = type(request)
        operation = ""
        try:
            found = self._handlers.get(kind)
            if found is None:
                opened, operation = self._open_handlers[kind]
                answer = opened(request, sender)
            else:
                handler, operation = found
                session = self._known(request.session)  # type: ignore[union-attr] # these kinds have one
                session.seen_s = began_s
                session.messages += 1
                answer = handler(session, request, sender)
        except Exception as error:  # noqa: BLE001 - the border of one call: no request may end the control thread
            return self._refuse(error, getattr(request, "call", None), operation, began_s)
        if answer is not None or not hasattr(request, "call"):
            self._holdings.tally.count(operation, "ok", self._holdings.clock() - began_s)
        return answer

    def settle(self, slow: SlowCall) -> Message | None:
        """Answer a call whose work is over; None where nobody waits any more."""
        seconds = self._holdings.clock() - slow.began_s
        try:
            result = slow.outcome()
            if slow.dropped or (slow.session and slow.session not in self.sessions):
                slow.undo(result)
                self._holdings.tally.count(slow.operation, "forsaken", seconds)
                return None
            answer = slow.finish(result)
        except BaseException as error:  # noqa: BLE001 - the border of one call, whose work ran elsewhere
            if slow.dropped:
                self._holdings.tally.count(slow.operation, "forsaken", seconds)
                return None
            return self._refuse(error, slow.call, slow.operation, slow.began_s)
        self._holdings.tally.count(slow.operation, "ok", seconds)
        return answer

    def _refuse(self, error: BaseException, call: int | None, operation: str, began_s: float) -> Message | None:
        seconds = self._holdings.clock() - began_s
        if isinstance(error, RefusedCallError):
            code, sentence, outcome = error.code, error.sentence, "refused"
        else:
            code, sentence, outcome = RefusalCode.INTERNAL, _internal(operation, error), "failed"
            self._log_once(f"{operation} {type(error).__name__}", operation, error)
        self._holdings.tally.count(operation, outcome, seconds)
        self._holdings.tally.count_refusal(code)
        return None if call is None else Refused(call, code, sentence, self._holdings.boot_id)

    def _log_once(self, kind: str, operation: str, error: BaseException) -> None:
        now_s = self._holdings.clock()
        if now_s >= self._log_after_s.get(kind, 0.0):
            self._log_after_s[kind] = now_s + _LEAST_LOG_GAP_S
            log.error("%s failed in the server (at most one such line in 10 s)", operation, exc_info=error)

    def _known(self, number: int) -> Session:
        session = self.sessions.get(number)
        if session is None:
            raise RefusedCallError(
                RefusalCode.SESSION, "the server does not know this session: it restarted, or ended it"
            )
        return session

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
        )
        self.sessions[session.number] = session
        log.info("session %d: %r, pid %d, has come", session.ordinal, session.name, session.pid)
        return session

    def end(self, number: int, why: str) -> None:
        """End a session and free all that it holds; nothing where there is none."""
        session = self.sessions.pop(number, None)
        if session is None:
            return
        holdings = self._holdings
        holdings.watcher.forget(number)
        freed = session.end(holdings.promises, holdings.book, holdings.slow)
        holdings.tally.blocks_freed += freed
        log.info("session %d: %r %s; %d blocks were freed", session.ordinal, session.name, why, freed)

    def lease_counts(self) -> tuple[int, int]:
        """Leases that are being filled, and that are being read. Any thread."""
        sessions = list(self.sessions.values())
        return sum(len(one.fillings) for one in sessions), sum(len(one.readings) for one in sessions)

    def describe(self, now_s: float) -> list[dict[str, Any]]:
        """Tell how each session fares, as JSON values. Any thread."""
        sessions = list(self.sessions.values())
        return [one.describe(now_s, self._holdings.promises.count(one.number)) for one in sessions]

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


def _internal(operation: str, error: BaseException) -> str:
    return f"{operation or 'the call'} failed in the server with {type(error).__name__}; its log says more"
