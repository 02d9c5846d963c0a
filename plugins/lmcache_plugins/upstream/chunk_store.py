"""One of our stores, as a remote connector of LMCache uses it: whole chunks or nothing, always in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from lmcache_core import BackendError, BackendTimeoutError, ChunkKey, GuardedTier, LoadResult, StorageBackend
from lmcache_plugins.upstream.envelope import Envelope

log = logging.getLogger(__name__)

_MOST_PROMISES = 1024

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
        ping_timeout_s: Longest a ping may take; `timeout_s` where that is less.
    """

    def __init__(self, tier: GuardedTier, full_bytes: int, timeout_s: float, ping_timeout_s: float) -> None:
        self.timeout_s = min(timeout_s, tier.timeout_s)
        self._ping_timeout_s = min(self.timeout_s, ping_timeout_s)
        tier.blame_after(self.timeout_s)
        self._tier = tier
        self._envelope = Envelope(full_bytes)
        self._lock = threading.Lock()
        self._promised: dict[bytes, bool] = {}
        self._trouble = ""

    @property
    def connections(self) -> int:
        """Calls that the store takes at once."""
        return self._tier.connections

    def deadline(self) -> float:
        """Give the end of a call that begins now, in monotonic seconds."""
        return time.monotonic() + self.timeout_s

    def present(self, keys: Sequence[ChunkKey], deadline: float) -> int:
        """Count the leading chunks that the store has; 0 where it cannot tell.

        LMCache asks once for a lookup and again for the retrieve that follows. On the way back from an
        outage, when only a share of the requests is let in, the second question goes along with the first.
        """
        if not keys:
            return 0
        with self._lock:
            promised = self._promised.pop(keys[-1].digest, False)
        count = self._tier.count_present(keys, deadline=deadline, promised=promised)
        if count and not promised:
            self._promise(keys[count - 1].digest)
        return count

    def _promise(self, digest: bytes) -> None:
        with self._lock:
            self._promised[digest] = True
            if len(self._promised) > _MOST_PROMISES:
                del self._promised[next(iter(self._promised))]

    def begin(self, count: int, deadline: float) -> Loads | None:
        """Begin to load the chunks of one request; None while the store is left out.

        Args:
            count: Of its chunks: how often `Loads.one_is_over` will be called.
            deadline: Of all of them.
        """
        permit = self._tier.admit()
        return None if permit is None else Loads(self._tier, self._envelope, permit, count, self._tier.cap(deadline))

    def keep(self, key: ChunkKey, chunk: memoryview, deadline: float) -> str:
        """Store a chunk; the caller's bytes are not read after the return.

        Returns:
            ``""``, or why it is lost: ``bypassed``, ``breaker_open``, ``full``, ``timeout``, ``error``.
        """
        frame = self._envelope.empty()
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
        """Ask the store itself; give one of LMCache's codes, and say in the log what none of them can."""
        try:
            self._tier.ping(timeout_s=self._ping_timeout_s)
        except BackendError as error:
            self._say(str(error))
            return PING_TIMEOUT if isinstance(error, BackendTimeoutError) else PING_ERROR
        self._say("")
        return PING_SUCCESS

    def _say(self, trouble: str) -> None:
        """Log what a ping met, once until it meets something else."""
        with self._lock:
            known, self._trouble = self._trouble, trouble
        if trouble and trouble != known:
            log.warning("lmcore: a ping failed: %s", trouble)

    def close(self) -> None:
        """Let go of the store, within a second."""
        self._tier.close()


class Loads:
    """The loads of one request, which its guard admits together, and which pass or fail together.

    Args:
        tier: The store.
        envelope: Opens frames.
        permit: The guard's.
        count: Of chunks.
        deadline: In monotonic seconds.
    """

    def __init__(self, tier: GuardedTier, envelope: Envelope, permit: Any, count: int, deadline: float) -> None:
        self._tier = tier
        self._envelope = envelope
        self._permit = permit
        self._deadline = deadline
        self._lock = threading.Lock()
        self._left = count
        self._unanswered = 0

    def fetch(self, key: ChunkKey) -> memoryview | None:
        """Give a chunk; None for one that is not there, late or damaged. A damaged one is deleted. Any thread."""
        frame = self._envelope.empty()  # fresh each time: a store that answers too late may still write into the last

        def load(backend: StorageBackend) -> LoadResult:
            (result,) = backend.load_into([key], [frame], deadline=self._deadline)
            return LoadResult(result)

        future = self._tier.start_load(load)
        result = self._tier.finish_load(self._permit, future, deadline=self._deadline)
        if result is None:
            with self._lock:
                self._unanswered += 1
        elif result is LoadResult.FAILED:
            self._tier.count_load_failure(self._permit, "a chunk could not be read")
        elif result is LoadResult.HIT:
            chunk = self._envelope.open(frame, key.digest)
            if not isinstance(chunk, str):
                return chunk
            self._tier.forget([key], f"damaged: its {chunk} is wrong")
        elif result is LoadResult.CORRUPT:
            self._tier.forget([key], "damaged: short, long or unreadable")
        return None

    def one_is_over(self) -> None:
        """Take note that one chunk came, did not come, or is not waited for any more."""
        with self._lock:
            self._left -= 1
            over = not self._left
        if over:
            self._tier.end_loads(self._permit, passed=not self._unanswered)
