"""Tells a store that does not answer from a caller that does not wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from lmcache_core.errors import BackendTimeoutError
from lmcache_core.storage.breaker import Outcome

_FAIR_SHARE = 0.5
"""Of the store's own longest call: who waits so long for nothing has waited long enough to blame the store."""

_GRACE = 1.1
"""Of the same: a call that still runs then ignores its deadline."""


class HastyCallerError(BackendTimeoutError):
    """The caller's own deadline came so soon that it says nothing of the store."""


class Patience:
    """Judges the calls of one store. Any thread.

    Args:
        timeout_s: Longest that any call may take.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._left: dict[Future[Any], float] = {}

    def excuses(self, began_s: float) -> bool:
        """Whether a call that ends now without an answer had too little time, at a store that seems well.

        Args:
            began_s: Monotonic seconds.
        """
        now_s = time.monotonic()
        oldest_s = min(list(self._left.values()), default=now_s)
        return now_s - began_s < _FAIR_SHARE * self._timeout_s and now_s - oldest_s < _GRACE * self._timeout_s

    def leave(
        self, future: Future[Any], began_s: float, judge: Callable[[Outcome, BaseException | None], object]
    ) -> None:
        """Learn from a call that its caller has left; `judge` is told how it ended, on the thread that ends it."""
        self._left[future] = began_s
        future.add_done_callback(lambda done: judge(*self._over(done)))

    def _over(self, future: Future[Any]) -> tuple[Outcome, BaseException | None]:
        began_s = self._left.pop(future)
        if future.cancelled():  # it never began
            return Outcome.ABANDONED, None
        error = future.exception()
        if error is None:
            return Outcome.PASSED, None
        late = isinstance(error, BackendTimeoutError)
        if late and self.excuses(began_s):
            return Outcome.ABANDONED, None
        return Outcome.TIMED_OUT if late else Outcome.FAILED, error
