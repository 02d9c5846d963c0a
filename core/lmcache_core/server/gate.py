"""What must hold before a request is served."""

from __future__ import annotations

import time
from collections.abc import Callable

from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.server.registration import Registration
from lmcache_core.server.session import Session
from lmcache_core.wire.farewell import STOPPING
from lmcache_core.wire.messages import RefusalCode

_MOST_REQUEST_ID = 1024


class Gate:
    """Refuses while the cache is unhealthy or the server stops.

    Args:
        is_healthy: Whether the cache is to be used.
        reason: Says why it is not.
        timeout_s: Longest that any call may take.
        lends: Whether there is shared memory to lend blocks of.
        is_attached: Whether a session's client would be missed if it died.
    """

    def __init__(
        self,
        *,
        is_healthy: Callable[[], bool],
        reason: Callable[[], str],
        timeout_s: float,
        lends: bool,
        is_attached: Callable[[int], bool],
    ) -> None:
        self.is_healthy = is_healthy
        self._reason = reason
        self._timeout_s = timeout_s
        self.lends = lends
        self._is_attached = is_attached
        self.stopping = False

    @property
    def reason(self) -> str:
        """Why nothing is served now."""
        return STOPPING if self.stopping else self._reason()

    @property
    def is_open(self) -> bool:
        """Whether lookups, reservations and retrieves are served."""
        return not self.stopping and self.is_healthy()

    def check_healthy(self) -> None:
        """Refuse what would be of no use now.

        Raises:
            RefusedCallError: The cache is unhealthy or the server stops.
        """
        if self.stopping or not self.is_healthy():
            raise RefusedCallError(RefusalCode.UNHEALTHY, self.reason or "the cache is unhealthy")

    def check_lending(self, session: Session) -> None:
        """Refuse to lend blocks that could not be taken back.

        Raises:
            RefusedCallError: There is no shared memory, or the client is not on the lifeline.
        """
        if not self.lends:
            raise RefusedCallError(
                RefusalCode.UNSUPPORTED, "this server lends no blocks; its own process stores and retrieves"
            )
        self.check_attached(session)

    def check_attached(self, session: Session) -> None:
        """Refuse what only a client may ask whose death would be seen.

        Raises:
            RefusedCallError: The client is not on the lifeline.
        """
        if not self._is_attached(session.number):
            raise RefusedCallError(
                RefusalCode.SESSION, "the session is not on the lifeline; connect there with the ticket first"
            )

    def deadline(self, timeout_s: float) -> float:
        """Give the time by which a call must be over: the client's wish, but no later than configured."""
        wanted_s = timeout_s if timeout_s >= 0 else 0.0  # what is no number is below everything
        return time.monotonic() + min(wanted_s, self._timeout_s)


def registered(session: Session, number: int, request_id: str) -> Registration:
    """Find the registration that a request is about.

    Raises:
        RefusedCallError: The session has none of this number, or the request's id is too long.
    """
    found = session.registrations.get(number)
    if found is None:
        raise RefusedCallError(RefusalCode.REGISTRATION, f"the session has no registration {number}; register first")
    if len(request_id) > _MOST_REQUEST_ID:
        raise RefusedCallError(RefusalCode.MALFORMED, f"a request_id of {len(request_id)} characters is too long")
    return found
