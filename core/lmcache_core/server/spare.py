"""Open files kept in reserve, so that a process which may open no more can still let a client in, and say so."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

MOST_SPARE = 16
"""A client of one thread opens three connections, and one more for each call that it has under way at once."""

_LEAST_LOG_GAP_S = 10.0
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})


class SpareFiles:
    """Lets clients in, the last of them with files from its reserve. Any thread.

    Args:
        address: Where clients come, for sentences.
        clock: Monotonic seconds.

    Attributes:
        turned_away: Attempts of clients to come in that the system refused.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.turned_away = 0
        self._address = address
        self._clock = clock
        self._lock = threading.Lock()
        self._held: list[int] = []
        self._log_after_s = clock()
        self._failure = ""
        self.refill()

    @property
    def reason(self) -> str:
        """``""``, or one sentence why a client cannot come in, or soon will not."""
        spare = len(self._held)
        if spare == MOST_SPARE:
            return ""
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        what = (
            f"new clients wait ({self._failure})" if self._failure else f"{spare} of {MOST_SPARE} spare ones are left"
        )
        return (
            f"the process that serves at {self._address} may open no more files, of which it is allowed {soft}: "
            f"{what}; raise the limit (LimitNOFILE, ulimit -n) or see what else in the process holds files"
        )

    def accept(self, listener: socket.socket) -> socket.socket:
        """Let one client in.

        Raises:
            OSError: None waits, or the system refuses and nothing is in reserve any more.
        """
        while True:
            try:
                return listener.accept()[0]
            except OSError as error:  # noqa: PERF203 - a second round is rare
                if error.errno not in _OUT_OF_FILES:
                    raise
                if not self._spend():
                    with self._lock:  # clients come by two doors, on two threads
                        self.turned_away += 1
                        self._failure = error.strerror or str(error)
                    self._warn()
                    raise

    def refill(self) -> None:
        """Fill the reserve again, as far as the system lets us; costs nothing while it is full."""
        if len(self._held) == MOST_SPARE:
            return
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < MOST_SPARE:
                self._held.append(os.eventfd(0, os.EFD_CLOEXEC))
                self._failure = ""
        if len(self._held) < MOST_SPARE:
            self._warn()

    def describe(self) -> dict[str, Any]:
        """Tell how it fares, as JSON values."""
        return {"spare": len(self._held), "turned_away": self.turned_away, "reason": self.reason}

    def close(self) -> None:
        """Let go of the reserve."""
        while self._spend():
            pass

    def disown(self) -> None:
        """In a forked child: let go of its copy."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self.close()

    def _spend(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    def _warn(self) -> None:
        now_s = self._clock()
        if now_s >= self._log_after_s:
            self._log_after_s = now_s + _LEAST_LOG_GAP_S
            log.warning("%s (at most one such line in 10 s)", self.reason)
