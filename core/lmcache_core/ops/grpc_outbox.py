"""Tells the watchers of the gRPC health service, with no lock held."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

Send = Callable[[Any], None]
"""Sends one answer and waits until gRPC has taken it; None ends the stream."""


class Outbox:
    """Sends on a thread of its own what watchers are to hear.

    The library's servicer sends while it holds its lock, and a send waits for gRPC's own thread, which asks for that
    lock when a watcher leaves: both would wait for ever, and every probe with them.

    A watcher that takes its answers slowly gets only the newest, so that no more than one waits for each. Any thread.
    """

    def __init__(self) -> None:
        self._pool = WorkerPool("lmcache-grpc-watchers", 1)
        self._closed = False

    def behind(self, send: Send) -> Send:
        """Give what returns at once and lets `send` be called soon."""
        return _Watcher(send, self._post).hear

    def close(self) -> None:
        """Send no more than what waits already."""
        self._closed = True
        self._pool.close()

    def _post(self, deliver: Callable[[], None]) -> bool:
        if self._closed:  # the service has ended, and every stream with it
            return False
        try:
            self._pool.submit(deliver)
        except RuntimeError as error:  # the system gives no thread
            log.warning("internal_grpc: a watcher could not be told (%s), and hears of the next change", error)
            return False
        return True


class _Watcher:
    """One stream, with the newest answer that it has not been sent."""

    def __init__(self, send: Send, post: Callable[[Callable[[], None]], bool]) -> None:
        self._send = send
        self._post = post
        self._lock = threading.Lock()
        self._waiting: list[Any] = []
        self._ended = False

    def hear(self, answer: Any) -> None:
        """Keep an answer in place of the one that waits; the end stays the last word."""
        with self._lock:
            if self._ended:
                return
            self._ended = answer is None
            if self._waiting or self._post(self._deliver):
                self._waiting = [answer]

    def _deliver(self) -> None:
        with self._lock:
            (answer,), self._waiting = self._waiting, []
        try:
            self._send(answer)
        except Exception:  # a broken stream costs its watcher, not the thread that tells the others
            log.warning("internal_grpc: a watcher could not be told, and hears of the next change", exc_info=True)
