"""Lookups under way, as the engine's face hands them out: in tokens, and never raising."""

from __future__ import annotations

import time
from collections.abc import Callable

from lmcache_core.access.chunk_access import PendingFound


class FinishedLookup:
    """A lookup that was over before it began."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def done(self) -> bool:
        """Give True."""
        return True

    def result(self, timeout_s: float | None = None) -> int:
        """Give the tokens at once."""
        del timeout_s
        return self._tokens

    def cancel(self) -> None:
        """Do nothing: it holds nothing."""


class AsyncLookup:
    """A lookup whose answer is still to come.

    Args:
        pending: In chunks.
        chunk_tokens: Tokens in a chunk.
        deadline: Monotonic seconds; after it the answer is 0, and what still arrives is given up.
        refused: Counts and logs an error; gives the answer instead.
        most_tokens: That were asked for: the last chunk may not be full.
    """

    def __init__(
        self,
        pending: PendingFound,
        chunk_tokens: int,
        deadline: float,
        refused: Callable[[Exception], int],
        *,
        most_tokens: int,
    ) -> None:
        self._pending = pending
        self._chunk_tokens = chunk_tokens
        self._deadline = deadline
        self._refused = refused
        self._most_tokens = most_tokens
        self._tokens: int | None = None

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return self._tokens is not None or time.monotonic() >= self._deadline or self._pending.done()

    def result(self, timeout_s: float | None = None) -> int:
        """Wait for the tokens promised, at most so long, and never past the deadline; 0 when late."""
        if self._tokens is None:
            left_s = max(0.0, self._deadline - time.monotonic())
            self._tokens = self._wait(left_s if timeout_s is None else min(timeout_s, left_s))
        return self._tokens or 0

    def cancel(self) -> None:
        """Give the lookup up, with what it has promised or will promise."""
        self._tokens = self._tokens or 0
        self._pending.cancel()

    def _wait(self, timeout_s: float) -> int | None:
        try:
            found = self._pending.result(timeout_s)
        except Exception as error:  # noqa: BLE001 - promise 1: the border to the engine
            return self._refused(error)
        if found is not None:
            return min(found.chunks * self._chunk_tokens, self._most_tokens)
        if time.monotonic() < self._deadline:
            return None  # not yet: ask again
        self._pending.cancel()
        return 0
