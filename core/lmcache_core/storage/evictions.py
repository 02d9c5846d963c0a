"""How many chunks a store has let go by itself; asked after a batch that it has kept, which must not suffer from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from lmcache_core.errors import BackendTimeoutError
from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

_LONGEST_S = 1.0


class EvictionWatch:
    """Asks a third party's store, and takes whatever it does instead of answering. Any thread.

    Args:
        ask: Gives the chunks evicted since start.
        pool: Where it is asked.
        who: Name and address of the store, for the log.
        timeout_s: Longest to wait for an answer, at most a second.
        on_error: Told each time that it raises, gives no number or does not answer.
    """

    def __init__(
        self, ask: Callable[[], int], pool: WorkerPool, *, who: str, timeout_s: float, on_error: Callable[[], None]
    ) -> None:
        self._ask = ask
        self._pool = pool
        self._who = who
        self._timeout_s = min(timeout_s, _LONGEST_S)
        self._on_error = on_error
        self._lock = threading.Lock()
        self._owed: Future[int] | None = None
        self._total = 0
        self._warned = False

    def take_new(self) -> int:
        """Give the chunks evicted since the last call; 0 while the store owes an earlier answer. Raises nothing."""
        try:
            total = self._asked()
        except Exception as error:  # noqa: BLE001 - the border to a third party's store
            self._failed(error)
            return 0
        with self._lock:
            new, self._total = max(0, total - self._total), max(total, self._total)
        return new

    def _asked(self) -> int:
        with self._lock:
            if self._owed is not None and not self._owed.done():
                return 0
            owed = self._owed = self._pool.submit(self._ask)
        wait([owed], timeout=self._timeout_s)
        if not owed.done():
            raise BackendTimeoutError("no answer before its deadline")
        error = owed.exception()
        if error is not None:  # not a plain raise: a store that raises SystemExit must not end its caller
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        total = owed.result()
        if not isinstance(total, int):
            raise TypeError(f"must be a whole number, got {type(total).__name__}")
        return total

    def _failed(self, error: Exception) -> None:
        self._on_error()
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            log.warning(
                "%s: evicted_chunks: %s; nothing is lost, but its evictions are not counted (said once)",
                self._who,
                error,
                exc_info=None if isinstance(error, BackendTimeoutError) else error,
            )
