"""The protocol between the engine's face and wherever the chunks are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from lmcache_core.access.format import ChunkFormat
from lmcache_core.contracts.cache import Cleared
from lmcache_core.storage.run import ChunkRun, Found


@dataclass(frozen=True, slots=True)
class Reservation:
    """Blocks to fill for some chunks of a run. Give it to `commit` or `abandon`, exactly once.

    Attributes:
        run: The request's chunks.
        places: Which of them.
        payloads: As many writable views, each one chunk's payload.
        handle: Whatever the access needs to know it again.
    """

    run: ChunkRun
    places: Sequence[int]
    payloads: Sequence[memoryview]
    handle: Any


class PendingFound(Protocol):
    """A lookup under way."""

    def done(self) -> bool:
        """Whether `result` would not wait."""

    def result(self, timeout_s: float) -> Found | None:
        """Wait, at most so long; None when late. Raises what the lookup raised."""

    def cancel(self) -> None:
        """Give up the lookup and what it has promised or will promise."""


class ChunkAccess(Protocol):
    """Chunks by digest. Methods may raise any `Exception`; the engine's face is the border that catches it.

    `runs` has one run a rank, and one only but for a scheduler that asks on behalf of all ranks: then the
    smallest answer counts. Deadlines are `time.monotonic()` values.
    """

    @property
    def format(self) -> ChunkFormat | None:
        """How chunks are cut and named; None while no server has been reached yet."""

    def is_healthy(self) -> bool:
        """Whether calls are worth making; costs no more than a method call."""

    def lookup(self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float) -> Found:
        """Count the leading chunks that can be fetched, and hold them for the fetch."""

    def prefetch(
        self, runs: Sequence[ChunkRun], request_id: str, *, requested_tokens: int, deadline: float
    ) -> PendingFound:
        """Begin a lookup that also loads what further tiers have."""

    def release(self, runs: Sequence[ChunkRun], request_id: str) -> bool:
        """Give up a lookup's promise; False if there is none."""

    def reserve(self, run: ChunkRun, request_id: str, *, deadline: float) -> Reservation:
        """Lend blocks for the chunks that are neither kept nor being filled by another."""

    def commit(self, reservation: Reservation, request_id: str, *, deadline: float) -> int:
        """Keep filled blocks; give how many chunks were kept."""

    def abandon(self, reservation: Reservation) -> None:
        """Take back blocks that will not be filled."""

    def fetch(
        self, run: ChunkRun, request_id: str, *, skip_chunks: int, deadline: float
    ) -> AbstractContextManager[FetchedChunks]:
        """Give the payloads of the leading chunks behind the skipped ones; valid until the context ends."""

    def clear(self) -> list[Cleared]:
        """Drop every chunk of the tiers that are this cache's own."""


class FetchedChunks(Protocol):
    """Payloads that arrive in order. Count what is used, so that metrics and events are right."""

    delivered_chunks: int
    """Chunks used so far, set by the caller; the skipped ones not counted."""

    def __iter__(self) -> Any:
        """Iterate over payload views, as they arrive."""
