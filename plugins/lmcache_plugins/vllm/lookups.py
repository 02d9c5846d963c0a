"""Lookups on behalf of every rank: what one rank lacks, none can load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Pending(Protocol):
    """A lookup under way, as `KVCache.lookup_async` gives it."""

    def done(self) -> bool:
        """Whether `result` would not wait."""

    def result(self, timeout_s: float | None = None) -> int:
        """Wait for the tokens promised, at most so long; 0 when late."""

    def cancel(self) -> None:
        """Give the lookup up, with what it has promised."""


class Lookups(Protocol):
    """The part of a `KVCache` that the scheduler's side uses."""

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk; 0 while that is not known."""

    @property
    def save_unfull_chunk(self) -> bool:
        """Whether the rest of a prompt that fills no chunk is kept and found too."""

    def lookup_async(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> Pending:
        """Begin a lookup."""

    def clear(self) -> Sequence[Any]:
        """Drop every chunk that is the cache's own."""


class RankLookups:
    """The caches of several ranks, each in its own process, as one `Lookups`.

    Args:
        caches: One a rank, at least one.
    """

    def __init__(self, caches: Sequence[Lookups]) -> None:
        self._caches = caches

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk; 0 while a rank does not say."""
        sizes = {cache.chunk_tokens for cache in self._caches}
        return sizes.pop() if len(sizes) == 1 else 0

    @property
    def save_unfull_chunk(self) -> bool:
        """Whether every rank keeps the rest of a prompt that fills no chunk."""
        return all(cache.save_unfull_chunk for cache in self._caches)

    def lookup_async(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> Pending:
        """Begin a lookup in every rank's cache; the answer is the smallest."""
        return _Least(
            [cache.lookup_async(tokens, salt=salt, variant=variant, request_id=request_id) for cache in self._caches]
        )

    def clear(self) -> Sequence[Any]:
        """Drop every rank's chunks; empty, as for no answer, where a rank gave none."""
        answers = [cache.clear() for cache in self._caches]
        return [cleared for answer in answers for cleared in answer] if all(answers) else ()


class _Least:
    def __init__(self, pending: Sequence[Pending]) -> None:
        self._pending = pending

    def done(self) -> bool:
        return all(pending.done() for pending in self._pending)

    def result(self, timeout_s: float | None = None) -> int:
        return min(pending.result(timeout_s) for pending in self._pending)

    def cancel(self) -> None:
        for pending in self._pending:
            pending.cancel()
