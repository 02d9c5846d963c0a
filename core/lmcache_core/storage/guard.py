"""What stands around every store behind tier 0: deadline, bypass, counters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.storage import BackendUsage, Frame, LoadResult, StorageBackend
from lmcache_core.errors import BackendError, BackendFullError, BackendTimeoutError
from lmcache_core.events.journal import Journal
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.cleared import Cleared
from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

T = TypeVar("T")

PING_SUCCESS_CODE = 0
PING_TIMEOUT_ERROR_CODE = -1
PING_GENERIC_ERROR_CODE = -2

_PROBE_WORKERS = 2
"""Probes have workers of their own: a store that hangs live calls must still be pinged, and a hung ping replaced."""

_LEAST_WARNING_GAP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSetup:
    """Everything a guard needs to know of its store.

    Attributes:
        name: Unique among the tiers.
        url: Address without credentials.
        kind: Of store, the scheme of its address; for events.
        options: The store's own health keys.
        connections: Calls at once.
        timeout_s: Longest a call may take that has no tighter deadline, ``blocking_timeout_secs``.
    """

    name: str
    url: str
    kind: str
    options: HealthOptions
    connections: int
    timeout_s: float


class GuardedTier:
    """A store that can be slow, hang, lie or die without its callers noticing more than a miss.

    Live calls (`count_present`, `start_load`, `write`) honour the bypass and count failures. Probe calls,
    those of `contracts.control.Tier`, go past the bypass. Safe from any thread.

    Args:
        backend: The store.
        setup: What it is called and how long it may take.
        metrics: Families to count in.
        journal: Where events go.
        on_failure: Told after each failure of live traffic; must not block.
    """

    def __init__(
        self,
        backend: StorageBackend,
        setup: TierSetup,
        metrics: CacheMetrics,
        journal: Journal,
        on_failure: Callable[[], None],
    ) -> None:
        self.name = setup.name
        self.url = setup.url
        self.kind = setup.kind
        self.options = setup.options
        self.connections = setup.connections
        self.timeout_s = setup.timeout_s
        self._backend = backend
        self._metrics = metrics
        self._journal = journal
        self._on_failure = on_failure
        self._pool = WorkerPool(f"lmcache-{setup.name}", setup.connections)
        self._writers = WorkerPool(f"lmcache-{setup.name}-write", setup.connections)
        self._probes = WorkerPool(f"lmcache-{setup.name}-probe", _PROBE_WORKERS)
        self._lock = threading.Lock()
        self._holders: dict[str, str] = {}
        self._load_failures = 0
        self._warn_after = 0.0
        self._gauge = metrics.backend_bypassed.labels(setup.name)
        self._gauge.set(0)
        self.bypassed = False

    # -- bypass ---------------------------------------------------------------

    def hold_bypass(self, owner: str, reason: str) -> None:
        """Leave the store out of live traffic while this owner holds it."""
        with self._lock:
            self._holders[owner] = reason
            self._publish_bypass()

    def release_bypass(self, owner: str) -> None:
        """End the owner's hold; other owners' holds stay."""
        with self._lock:
            self._holders.pop(owner, None)
            self._publish_bypass()

    def holders(self) -> dict[str, str]:
        """Who holds the bypass, and why."""
        with self._lock:
            return dict(self._holders)

    def _publish_bypass(self) -> None:
        self.bypassed = bool(self._holders)
        self._gauge.set(int(self.bypassed))

    # -- live traffic ---------------------------------------------------------

    def count_present(self, keys: Sequence[ChunkKey], *, deadline: float) -> int:
        """Count the leading keys in the store; 0 when bypassed, late or failing."""
        if self.bypassed or not keys:
            return 0
        try:
            return self._run(self._pool, lambda: self._backend.contains(keys, deadline=deadline), deadline, "contains")
        except BackendError as error:
            self._load_failed(error)
            return 0

    def start_load(self, job: Callable[[StorageBackend], T]) -> Future[T]:
        """Start a load on a worker; watch it with `finish_load`."""
        return self._pool.submit(lambda: job(self._backend))

    def finish_load(self, future: Future[T], *, deadline: float) -> T | None:
        """Wait for a load until the deadline; None when it is late or failed, which is counted."""
        try:
            return self._await(future, deadline, "load")
        except BackendError as error:
            self._load_failed(error)
            return None

    def write(self, items: Sequence[tuple[ChunkKey, Frame]], finished: Callable[[], None]) -> str:
        """Store frames, for the write-behind thread.

        Args:
            items: What to store.
            finished: Called once nothing reads the frames any more, which may be after the return.

        Returns:
            ``""``, or why the frames are lost: ``bypassed``, ``full``, ``timeout``, ``error``.
        """
        if self.bypassed:
            finished()
            return "bypassed"
        deadline = time.monotonic() + self.timeout_s
        future = self._writers.submit(lambda: self._backend.store(items, deadline=deadline))
        future.add_done_callback(lambda _: finished())
        try:
            self._await(future, deadline, "store")
        except BackendError as error:
            return self._write_failed(error)
        return ""

    def forget(self, keys: Sequence[ChunkKey], reason: str) -> None:
        """Delete chunks, without waiting, and say so in the log."""
        log.warning("%s (%s): %d chunk(s) deleted: %s", self.name, self.url, len(keys), reason)
        deadline = time.monotonic() + self.timeout_s
        self._probes.submit(lambda: self._backend.delete(keys, deadline=deadline))

    def count_load_failure(self, reason: str) -> None:
        """Count a failure that the store reported of single chunks."""
        self._load_failed(BackendError(f"{self.name} ({self.url}): {reason}"))

    def clear(self) -> Cleared:
        """Clear a store that is this instance's own; leave a shared one alone."""
        try:
            chunks = self._probe(lambda deadline: self._backend.clear(deadline=deadline), self.timeout_s, "clear")
        except BackendError as error:
            return Cleared(backend=self.name, chunks=-1, reason=str(error))
        if chunks is None:
            return Cleared(backend=self.name, chunks=-1, reason="shared with other instances, so left alone")
        return Cleared(backend=self.name, chunks=chunks)

    # -- probes: contracts.control.Tier ---------------------------------------

    @property
    def load_failures(self) -> int:
        """Loads and lookups that raised or timed out since start; misses never count."""
        return self._load_failures

    def ping(self, *, timeout_s: float) -> float:
        """Ask the store; see `Tier.ping`."""
        started = time.monotonic()
        try:
            self._probe(lambda deadline: self._backend.ping(deadline=deadline), timeout_s, "ping")
        except BackendTimeoutError:
            self._record_ping(PING_TIMEOUT_ERROR_CODE, started)
            raise
        except BackendError:
            self._record_ping(PING_GENERIC_ERROR_CODE, started)
            raise
        return self._record_ping(PING_SUCCESS_CODE, started)

    def store(self, items: Sequence[tuple[ChunkKey, Frame]], *, timeout_s: float) -> None:
        """Store past the bypass; see `Tier.store`."""
        self._probe(lambda deadline: self._backend.store(items, deadline=deadline), timeout_s, "store")

    def load_into(self, keys: Sequence[ChunkKey], outs: Sequence[memoryview], *, timeout_s: float) -> list[LoadResult]:
        """Load past the bypass; see `Tier.load_into`."""
        return self._probe(lambda deadline: self._backend.load_into(keys, outs, deadline=deadline), timeout_s, "load")

    def delete(self, keys: Sequence[ChunkKey], *, timeout_s: float) -> int:
        """Delete past the bypass; see `Tier.delete`."""
        return self._probe(lambda deadline: self._backend.delete(keys, deadline=deadline), timeout_s, "delete")

    def usage(self) -> BackendUsage:
        """Tell how full the store is, or that it cannot tell."""
        try:
            return self._probe(lambda _: self._backend.usage(), self.options.ping_timeout, "usage")
        except BackendError:
            return BackendUsage()

    def close(self) -> None:
        """Let go of the store within a second, whatever it does."""
        closing = self._probes.submit(self._backend.close)
        wait([closing], timeout=1.0)
        for pool in (self._pool, self._writers, self._probes):
            pool.close()

    # -- inside ---------------------------------------------------------------

    def _probe(self, call: Callable[[float], T], timeout_s: float, what: str) -> T:
        deadline = time.monotonic() + timeout_s
        return self._run(self._probes, lambda: call(deadline), deadline, what)

    def _run(self, pool: WorkerPool, call: Callable[[], T], deadline: float, what: str) -> T:
        return self._await(pool.submit(call), deadline, what)

    def _await(self, future: Future[T], deadline: float, what: str) -> T:
        wait([future], timeout=max(0.0, deadline - time.monotonic()))
        if not future.done():
            future.cancel()  # one that has not begun never will; one that runs is left to end by itself
            sentence = f"{self.name} ({self.url}): {what} gave no answer before its deadline"
            self._journal.timed_out(f"{self.kind}: {what} gave no answer before its deadline", "BackendTimeoutError")
            raise BackendTimeoutError(sentence)
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, BackendError):
            raise error
        # Not a plain raise: a store that raises SystemExit must not end its caller.
        log.error("%s (%s): %s raised %s", self.name, self.url, what, type(error).__name__, exc_info=error)
        raise BackendError(f"{self.name} ({self.url}): {what} raised {type(error).__name__}: {error}") from error

    def _load_failed(self, error: BackendError) -> None:
        with self._lock:
            self._load_failures += 1
        self._metrics.get_blocking_failed.labels(self.name).inc()
        self._warn("load", error)
        self._on_failure()

    def _write_failed(self, error: BackendError) -> str:
        self._metrics.put_failed.labels(self.name).inc()
        self._warn("store", error)
        if isinstance(error, BackendFullError):
            return "full"  # readable all the same: no reason to wake the monitor
        self._on_failure()
        return "timeout" if isinstance(error, BackendTimeoutError) else "error"

    def _warn(self, what: str, error: BackendError) -> None:
        now = time.monotonic()
        with self._lock:
            due, self._warn_after = now >= self._warn_after, max(self._warn_after, now)
            if due:
                self._warn_after = now + _LEAST_WARNING_GAP_S
        if due:
            log.warning("%s failed, treated as a miss: %s (at most one such line in 10 s)", what, error)

    def _record_ping(self, code: int, started: float) -> float:
        latency_ms = (time.monotonic() - started) * 1000
        self._metrics.remote_ping_latency.labels(self.name).set(latency_ms)
        self._metrics.remote_ping_error_code.labels(self.name).set(code)
        counter = self._metrics.remote_ping_errors if code else self._metrics.remote_ping_successes
        counter.labels(self.name).inc()
        return latency_ms
