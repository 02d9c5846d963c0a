"""One of our stores, as a remote connector of LMCache uses it: whole chunks or nothing, always in time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from lmcache_core import BackendError, BackendTimeoutError, ChunkKey, GuardedTier, LoadResult, StorageBackend
from lmcache_plugins.upstream.envelope import Envelope

PING_SUCCESS = 0
PING_TIMEOUT = -1
PING_ERROR = -2
"""LMCache's codes."""


class ChunkStore:
    """Keeps chunks in envelopes behind a guard. Blocking; any thread; no method raises because the store fails.

    Args:
        tier: The store; its guard keeps deadlines and cuts it off while it fails.
        full_bytes: Of a full chunk.
        timeout_s: Longest any call may take.
    """

    def __init__(self, tier: GuardedTier, full_bytes: int, timeout_s: float) -> None:
        self.timeout_s = min(timeout_s, tier.timeout_s)
        self._tier = tier
        self._envelope = Envelope(full_bytes)

    @property
    def connections(self) -> int:
        """Calls that the store takes at once."""
        return self._tier.connections

    def deadline(self) -> float:
        """Give the end of a call that begins now, in monotonic seconds."""
        return time.monotonic() + self.timeout_s

    def present(self, keys: Sequence[ChunkKey], deadline: float) -> int:
        """Count the leading chunks that the store has; 0 where it cannot tell."""
        return self._tier.count_present(keys, deadline=deadline)

    def fetch(self, key: ChunkKey, deadline: float) -> memoryview | None:
        """Give a chunk; None for one that is not there, late or damaged. A damaged one is deleted."""
        permit = self._tier.admit() if time.monotonic() < deadline else None
        if permit is None:
            return None
        deadline = self._tier.cap(deadline)
        frame = self._frame()  # fresh each time: a store that answers too late may still write into the last

        def load(backend: StorageBackend) -> LoadResult:
            return backend.load_into([key], [frame], deadline=deadline)[0]

        result = self._tier.finish_load(permit, self._tier.start_load(load), deadline=deadline)
        if result is LoadResult.FAILED:
            self._tier.count_load_failure(permit, "a chunk could not be read")
        self._tier.end_loads(permit, passed=result is not None)
        if result is LoadResult.HIT:
            chunk = self._envelope.open(frame, key.digest)
            if not isinstance(chunk, str):
                return chunk
            self._tier.forget([key], f"damaged: its {chunk} is wrong")
        elif result is LoadResult.CORRUPT:
            self._tier.forget([key], "damaged: short, long or unreadable")
        return None

    def keep(self, key: ChunkKey, chunk: memoryview, deadline: float) -> str:
        """Store a chunk; the caller's bytes are not read after the return.

        Returns:
            ``""``, or why it is lost: ``bypassed``, ``breaker_open``, ``full``, ``timeout``, ``error``.
        """
        frame = self._frame()
        self._envelope.seal(frame, chunk, key.digest)
        if time.monotonic() >= deadline:
            return "timeout"
        return self._tier.write([(key, frame)], lambda: None)

    def drop(self, keys: Sequence[ChunkKey]) -> int:
        """Remove chunks and say how many were there; 0 where the store cannot tell."""
        try:
            return self._tier.delete(keys, timeout_s=self.timeout_s)
        except BackendError:
            return 0

    def ping(self) -> int:
        """Ask the store itself; give one of LMCache's codes."""
        try:
            self._tier.ping(timeout_s=min(self.timeout_s, self._tier.options.ping_timeout))
        except BackendTimeoutError:
            return PING_TIMEOUT
        except BackendError:
            return PING_ERROR
        return PING_SUCCESS

    def close(self) -> None:
        """Let go of the store, within a second."""
        self._tier.close()

    def _frame(self) -> memoryview:
        return np.empty(self._envelope.frame_bytes, dtype=np.uint8).data
