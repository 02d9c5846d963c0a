"""What stands around every store behind tier 0: deadline, bypass, counters."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from types import MappingProxyType
from typing import TypeVar

from lmcache_core.contracts.cache import Cleared
from lmcache_core.contracts.key import ChunkKey
from lmcache_core.contracts.storage import BackendUsage, Frame, LoadResult, StorageBackend
from lmcache_core.errors import BackendError, BackendFullError, BackendTimeoutError
from lmcache_core.events.journal import Journal, TierName
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.breaker import BreakerReport, BreakerState, CircuitBreaker, Outcome, Permit
from lmcache_core.storage.bypass import Bypass
from lmcache_core.storage.evictions import EvictionWatch
from lmcache_core.storage.evidence import Evidence
from lmcache_core.storage.leading import leading
from lmcache_core.storage.patience import HastyCallerError, Patience
from lmcache_core.storage.tier_setup import TierSetup
from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

T = TypeVar("T")

PING_SUCCESS_CODE = 0
PING_TIMEOUT_ERROR_CODE = -1
PING_GENERIC_ERROR_CODE = -2

_PROBE_WORKERS = 2
"""Probes have workers of their own: a store that hangs live calls must still be pinged, and a hung ping replaced."""

_LEAST_WARNING_GAP_S = 10.0

_BREAKER_LEVELS = MappingProxyType(
    {BreakerState.CLOSED: 0, BreakerState.RAMP: 1, BreakerState.HALF_OPEN: 2, BreakerState.OPEN: 3}
)
"""Values of ``lmcache:breaker_state``: the higher, the less traffic."""


class GuardedTier:
    """A store that can be slow, hang, lie or die without its callers noticing more than a miss.

    Live calls (`count_present`, `start_load`, `write`) honour bypass and breaker and count failures.
    Probe calls, those of `contracts.control.Tier`, go past both. Safe from any thread.

    Attributes:
        bypass: Who holds the store out.
        breaker: Whether its failures do.
        evidence: The last ping and the last failure.

    Args:
        backend: The store.
        setup: What it is called and how long it may take.
        metrics: Families to count in.
        journal: Where events go.
        on_failure: Told after each failure of live traffic; must not block.
        clock: Monotonic seconds, for the breaker.
    """

    def __init__(
        self,
        backend: StorageBackend,
        setup: TierSetup,
        metrics: CacheMetrics,
        *,
        journal: Journal,
        on_failure: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = setup.name
        self.url = setup.url
        self.known_as = TierName(setup.kind, setup.index)
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
        errors = metrics.eviction_report_errors.labels(setup.name)
        who = f"{setup.name} ({setup.url})"
        self._evictions = EvictionWatch(
            backend.evicted_chunks, self._probes, who=who, timeout_s=setup.timeout_s, on_error=errors.inc
        )
        self._patience = Patience(setup.timeout_s)
        self._lock = threading.Lock()
        self._load_failures = self._refused_writes = 0
        self._seen_down = False
        self._warn_after = 0.0
        bypass_gauge = metrics.backend_bypassed.labels(setup.name)
        bypass_gauge.set(0)
        self.bypass = Bypass(bypass_gauge.set)
        self.evidence = Evidence(clock)
        self._breaker_listener: Callable[[str, BreakerReport], None] = lambda _name, _report: None
        self.breaker = CircuitBreaker(setup.breaker, self._breaker_changed, clock)
        metrics.breaker_state.labels(setup.name).set(0)

    # -- bypass and breaker ---------------------------------------------------

    @property
    def kind(self) -> str:
        """Of store, the scheme of its address."""
        return self.known_as.kind

    @property
    def bypassed(self) -> bool:
        """Whether lookups and loads leave the store out."""
        return self.bypass.reads

    def is_open(self) -> bool:
        """Whether reads would be refused right now, without asking."""
        return self.bypass.reads or self.breaker.is_open

    def listen_to_breaker(self, listener: Callable[[str, BreakerReport], None]) -> None:
        """Tell one listener each change of the breaker, on the thread whose call changed it; it must not block."""
        self._breaker_listener = listener

    # -- live traffic ---------------------------------------------------------

    def blame_after(self, timeout_s: float) -> None:
        """Say that no caller will ever wait longer than this, so that one who did has not been in haste."""
        self._patience = Patience(min(timeout_s, self.timeout_s))

    def cap(self, deadline: float) -> float:
        """Give the earlier of a request's deadline and the store's own longest call from now on."""
        return min(deadline, time.monotonic() + self.timeout_s)

    def count_present(self, keys: Sequence[ChunkKey], *, deadline: float, promised: bool = False) -> int:
        """Count the leading keys in the store; 0 when left out, late or failing. `promised`: see `breaker.admit`."""
        if not keys or self.bypass.reads:
            return 0
        permit = self.breaker.admit(promised=promised)
        if permit is None:
            return 0
        began_s = time.monotonic()
        own = began_s + self.timeout_s  # the store's: that of a caller in haste would say nothing of the store
        future = self._pool.submit(lambda: leading(self._backend.contains(keys, deadline=own), len(keys)))
        try:
            count = self._await(future, min(deadline, own), "contains", began_s)
        except HastyCallerError:
            self._metrics.hasty_calls.labels(self.name).inc()
            self._patience.leave(future, began_s, lambda outcome, error: self._judge(permit, outcome, error))
            return 0
        except BackendError as error:
            self._load_failed(permit, error)
            return 0
        self.breaker.report(permit, Outcome.PASSED)
        return count

    def admit(self) -> Permit | None:
        """Give leave for the loads of one request, whose chunks the store has just promised.

        Hand it to `finish_load`, and in the end to `end_loads`.
        """
        return None if self.bypass.reads else self.breaker.admit(promised=True)

    def start_load(self, job: Callable[[StorageBackend], T]) -> Future[T]:
        """Start a load on a worker; watch it with `finish_load`."""
        return self._pool.submit(lambda: job(self._backend))

    def finish_load(
        self, permit: Permit, future: Future[T], *, deadline: float, began_s: float = -math.inf
    ) -> T | None:
        """Wait for a load until the deadline; None when it is late or failed, which is counted.

        Not so where the caller's deadline came soon after the load began.
        """
        try:
            return self._await(future, deadline, "load", began_s)
        except HastyCallerError:
            self._metrics.hasty_calls.labels(self.name).inc()
            self._patience.leave(future, began_s, lambda *_: None)
            return None
        except BackendError as error:
            self._load_failed(permit, error)
            return None

    def end_loads(self, permit: Permit, *, passed: bool) -> None:
        """End a permit: all loads passed, or nobody waited for them. A failure was reported already."""
        self.breaker.report(permit, Outcome.PASSED if passed else Outcome.ABANDONED)

    def write(self, items: Sequence[tuple[ChunkKey, Frame]], finished: Callable[[], None]) -> str:
        """Store frames, for the write-behind thread.

        Args:
            items: What to store.
            finished: Called once nothing reads the frames any more, which may be after the return.

        Returns:
            ``""``, or why the frames are lost: ``bypassed``, ``breaker_open``, ``full``, ``timeout``, ``error``.
        """
        bypassed = self.bypass.writes  # once: a hold that ends meanwhile must not put the blame on the breaker
        permit = None if bypassed else self.breaker.admit()
        if permit is None:
            finished()
            return "bypassed" if bypassed else "breaker_open"
        deadline = time.monotonic() + self.timeout_s
        future = self._writers.submit(lambda: self._backend.store(items, deadline=deadline))
        future.add_done_callback(lambda _: finished())
        try:
            self._await(future, deadline, "store")
        except BackendError as error:
            return self._write_failed(permit, error)
        self.breaker.report(permit, Outcome.PASSED)
        self._count_evictions()
        return ""

    def forget(self, keys: Sequence[ChunkKey], reason: str) -> None:
        """Delete chunks, without waiting, and say so in the log."""
        log.warning("%s (%s): %d chunk(s) deleted: %s", self.name, self.url, len(keys), reason)
        deadline = time.monotonic() + self.timeout_s
        self._probes.submit(lambda: self._backend.delete(keys, deadline=deadline))

    def count_load_failure(self, permit: Permit, reason: str) -> None:
        """Count a failure that the store reported of single chunks."""
        self._load_failed(permit, BackendError(f"{self.name} ({self.url}): {reason}"))

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

    @property
    def refused_writes(self) -> int:
        """Stores of live traffic that the store had no room for, since start."""
        return self._refused_writes

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
        """Load past the bypass; see `Tier.load_into`. The first that succeeds after a failed ping is a way back."""
        results = self._probe(
            lambda deadline: self._backend.load_into(keys, outs, deadline=deadline), timeout_s, "load"
        )
        if self._seen_down and LoadResult.HIT in results:
            self._seen_down = False
            self.breaker.probe_passed()
        return results

    def delete(self, keys: Sequence[ChunkKey], *, timeout_s: float) -> int:
        """Delete past the bypass; see `Tier.delete`."""
        return self._probe(lambda deadline: self._backend.delete(keys, deadline=deadline), timeout_s, "delete")

    def usage(self) -> BackendUsage:
        """Tell how full the store is, or that it cannot tell."""
        try:
            return self._probe(lambda _: self._backend.usage(), self.options.ping_timeout, "usage")
        except BackendError:
            return BackendUsage()

    def notices(self) -> Sequence[str]:
        """Say what will surprise later; nothing where the store cannot tell."""
        try:
            return tuple(self._probe(lambda _: self._backend.notices(), self.options.ping_timeout, "notices"))
        except BackendError:
            return ()

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

    def _await(self, future: Future[T], deadline: float, what: str, began_s: float = -math.inf) -> T:
        wait([future], timeout=max(0.0, deadline - time.monotonic()))
        if not future.done():
            future.cancel()  # one that has not begun never will; one that runs is left to end by itself
            sentence = f"{self.name} ({self.url}): {what} gave no answer before its deadline"
            if self._patience.excuses(began_s):
                raise HastyCallerError(sentence)
            late = f"{self.kind}: {what} gave no answer before its deadline"
            self._journal.timed_out(self.known_as, late, "BackendTimeoutError")
            raise BackendTimeoutError(sentence)
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, BackendTimeoutError) and self._patience.excuses(began_s):
            raise HastyCallerError(str(error)) from error
        if isinstance(error, BackendError):
            raise error
        # Not a plain raise: a store that raises SystemExit must not end its caller.
        log.error("%s (%s): %s raised %s", self.name, self.url, what, type(error).__name__, exc_info=error)
        raise BackendError(f"{self.name} ({self.url}): {what} raised {type(error).__name__}: {error}") from error

    def _breaker_changed(self, report: BreakerReport) -> None:
        self._metrics.breaker_state.labels(self.name).set(_BREAKER_LEVELS[report.state])
        if report.state is BreakerState.OPEN:
            self._metrics.breaker_opened.labels(self.name).inc()
            log.warning(
                "%s (%s): left out, %s; next trial in %.1f s", self.name, self.url, report.reason, report.next_trial_s
            )
        elif report.state is BreakerState.CLOSED:
            log.info("%s (%s): back in full use", self.name, self.url)
        self._breaker_listener(self.name, report)

    def _count_evictions(self) -> None:
        new = self._evictions.take_new()
        if new:
            self._metrics.evicted_chunks.labels(self.name).inc(new)
            self._journal.l2_evicted(self.known_as, new)

    def _judge(self, permit: Permit, outcome: Outcome, error: BaseException | None) -> None:
        if error is None:
            self.breaker.report(permit, outcome)
        else:
            self._load_failed(permit, error if isinstance(error, BackendError) else BackendError(str(error)))

    def _load_failed(self, permit: Permit, error: BackendError) -> None:
        self.breaker.report(permit, _outcome_of(error))
        with self._lock:
            self._load_failures += 1
        self._metrics.get_blocking_failed.labels(self.name).inc()
        self._warn("load", error)
        self._on_failure()

    def _write_failed(self, permit: Permit, error: BackendError) -> str:
        # A full store can still be read: that is no reason to cut it off, nor to wake the monitor.
        full = isinstance(error, BackendFullError)
        self.breaker.report(permit, Outcome.PASSED if full else _outcome_of(error))
        self._metrics.put_failed.labels(self.name).inc()
        self._warn("store", error)
        if full:
            with self._lock:
                self._refused_writes += 1
            return "full"
        self._on_failure()
        return "timeout" if isinstance(error, BackendTimeoutError) else "error"

    def _warn(self, what: str, error: BackendError) -> None:
        self.evidence.failed(what, str(error))
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
        self._seen_down = self._seen_down or code != PING_SUCCESS_CODE
        self.evidence.pinged(code, latency_ms)
        counter = self._metrics.remote_ping_errors if code else self._metrics.remote_ping_successes
        counter.labels(self.name).inc()
        return latency_ms


def _outcome_of(error: BackendError) -> Outcome:
    return Outcome.TIMED_OUT if isinstance(error, BackendTimeoutError) else Outcome.FAILED
