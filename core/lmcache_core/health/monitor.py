"""The thread that runs all checks, judges them, and opens and closes the engine's gate."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmcache_core.config.checks import CheckTable
from lmcache_core.contracts.control import HealthOptions, StorageControl
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import HealthCheck, HealthState
from lmcache_core.contracts.report import BackendReport, CheckReport, HealthReport
from lmcache_core.errors import ConfigError
from lmcache_core.health.blame import Blame
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.fallback import Fallbacks
from lmcache_core.health.history import traffic_of
from lmcache_core.health.maintenance import maintenance_of
from lmcache_core.health.roster import enlist, misses
from lmcache_core.health.run import Outcome, run_check
from lmcache_core.health.verdict import Verdict, age_check, judge_checks
from lmcache_core.health.watch import CheckWatch
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.registry.watched import where_is
from lmcache_core.threads import PeriodicThread, PeriodicThreadRegistry, ThreadLevel, ThreadRunSummary, describe_error
from lmcache_core.workers import WorkerPool

log = logging.getLogger(__name__)

_NAME = "health-monitor-thread"  # LMCache's name
_LONGEST_WAIT_S = 3600.0  # threading waits overflow on huge numbers
_INTERVALS_UNTIL_STUCK = 3
_PASSING = frozenset({HealthState.UP, HealthState.DEGRADED, HealthState.SKIPPED, HealthState.MAINTENANCE})
_NOTHING_SERVES = (
    "no tier is left to read from: CPU memory keeps nothing (local_cpu = false) and every store is left out"
)
_LEAST_STUCK_S = 5.0  # with a short interval, a busy machine alone must not close the gate


@dataclass(frozen=True, slots=True)
class _Look:
    """What the thread saw when it last looked; readers see all of it or none."""

    taken_s: float
    checks: tuple[CheckReport, ...]
    beliefs_s: tuple[float, ...]
    blocking: tuple[str, ...]
    awaited: tuple[str, ...]
    reservations: tuple[str, ...] = ()


class HealthMonitor(PeriodicThread):
    """Runs each check on its own interval and worker thread, and answers failures by policy.

    A run of this thread is one look at all checks: judge what has arrived or hangs, start what is
    due, settle policies, tell who asked. `is_healthy` and `report` are safe from any thread and
    never wait for a check or a store.

    Args:
        checks: ``(plugin, origin, check)``; names must be unique.
        policies: Fallback policies by name.
        builtin_policies: Names of those that are no third party's.
        storage: The switches that policies throw.
        options: Defaults for checks that set no interval or timeout.
        metrics: Where health is exported.
        on_change: Told, on this thread, when the system, a check, or what a backend gets changed; must not block.
        registry: Of periodic threads.
        init_failed_reason: Not empty: the cache never serves, and `start` starts nothing.
        plugins_failed: Plugins that did not load, or could not make something, with reasons; may grow later.
        bypassed: Gives the bypassed backends with their owners.
        backends: Describes the stores behind tier 0; must not block.
        tables: What the configuration says of single checks.
        limit_s: Longest that a policy may take to answer.
        blame: Tells whose fault it is that a check cannot be used as it is; without it, each stops the start.
        clock: Seconds that never go back.

    Raises:
        ConfigError: The configuration speaks of a check that there is not; or names, for a check, a policy or a
            backend that is not there or can do nothing for it.
        PluginError: What `blame` makes of a plugin's check that cannot be used.
    """

    _healthy = False
    _wake_requested = False
    _exited = False
    _told: tuple[object, ...] = ()
    _verdict = Verdict(healthy=False, state=HealthState.UNKNOWN)

    def __init__(
        self,
        *,
        checks: Sequence[Candidate],
        policies: Mapping[str, FallbackPolicy],
        builtin_policies: Collection[str] = (),
        storage: StorageControl,
        options: HealthOptions,
        metrics: CacheMetrics,
        on_change: Callable[[HealthReport], None],
        registry: PeriodicThreadRegistry,
        init_failed_reason: str = "",
        plugins_failed: Mapping[str, str] | None = None,
        bypassed: Callable[[], Mapping[str, tuple[str, ...]]] = dict,
        backends: Callable[[], tuple[BackendReport, ...]] = tuple,
        tables: Sequence[CheckTable] = (),
        limit_s: float = 10.0,
        blame: Blame | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        blame = blame or Blame()
        watches = enlist(checks, clock(), blame)
        interval_s = min([options.ping_interval, *(watch.terms.interval_s for watch in watches)])
        super().__init__(_NAME, interval_s, ThreadLevel.CRITICAL, registry=registry, clock=clock)
        self._fallbacks = Fallbacks(
            policies, storage, metrics, limit_s=limit_s, on_late=self._settle_soon, builtin=builtin_policies
        )
        self._fallbacks.validate(watches, blame)
        self._watches, self._storage, self._metrics = watches, storage, metrics
        self._on_change, self._init_failed_reason = on_change, init_failed_reason
        self._plugins_failed = {} if plugins_failed is None else plugins_failed
        self._refuse(misses(tables, watches))
        self._bypassed, self._backends = bypassed, backends
        self._pool = WorkerPool("health-check", max(1, len(watches)))
        self._arrivals: deque[tuple[CheckWatch, Outcome]] = deque()
        self._first_round = threading.Event()  # set once the gate shows the round's result
        self._lock = threading.Lock()  # around what report() and the thread both write: the verdict and the gate
        self._since_s = clock()
        self._look = self._take_look()
        self._compose()

    def is_healthy(self) -> bool:
        """Tell whether the cache may serve; an attribute read."""
        return self._healthy

    def get_health_checks(self) -> list[HealthCheck]:
        """Give all checks, by name."""
        return list(self.named_checks().values())

    def named_checks(self) -> dict[str, HealthCheck]:
        """Give all checks by the names they gave at the start, in order; asks none of them anything."""
        return {watch.name: watch.check for watch in self._watches}

    def wait_first_round(self, timeout_s: float) -> bool:
        """Wait until every check has a verdict; False when that took too long."""
        return self._first_round.wait(timeout_s)

    @property
    def first_round_done(self) -> bool:
        """Whether every check has a verdict, or none ever will: the cache did not initialise, or a check gave up."""
        return self._first_round.is_set()

    def wake(self) -> None:
        """Run all checks soon: live traffic has met an error. Cheap; a flood starts few extra runs."""
        self._wake_requested = True
        super().wake()

    def _settle_soon(self) -> None:
        super().wake()  # a policy has come back; no check has to run for that

    def start(self) -> None:
        """Begin the first round; after a failed initialisation there is nothing to begin."""
        if self._init_failed_reason:
            log.error("the cache did not initialise and only recomputes: %s", self._init_failed_reason)
            self._tell(self._compose())
            self._first_round.set()
            return
        self._look = at_first = self._take_look()
        super().start()
        self._compose()
        if not at_first.awaited:  # not what the thread may have seen since, and not yet shown at the gate
            self._first_round.set()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the rounds; from here on the cache does not serve, as nobody watches it."""
        stopped = super().stop(timeout_s)
        self._pool.close()
        self._compose()
        return stopped

    def report(self) -> HealthReport:
        """Give the whole verdict with its evidence and age."""
        return self._compose()

    def _execute(self) -> ThreadRunSummary:
        now_s = self._clock()
        self._take_arrivals(now_s)
        for watch in self._watches:
            watch.tick(now_s)
            watch.maintain(maintenance_of(watch.terms.backend, self._storage), now_s)
        for watch in self._watches:
            watch.look_around(now_s)
            if watch.is_due(now_s):
                watch.start(now_s)
                self._submit(watch)
            if watch.judged_s is not None:
                self._fallbacks.settle(watch, now_s)
        self._end_if_irrecoverable()
        self._look = look = self._take_look()
        report = self._compose()
        if self._end_reason or not look.awaited:
            self._first_round.set()
        self._tell(report)
        return self._summary()

    def _next_wait_s(self) -> float:
        if self._watches:
            self.interval_s = min(watch.terms.interval_s for watch in self._watches)
        now_s = self._clock()
        waits_s = [watch.next_event_s() - now_s for watch in self._watches]
        return max(0.0, min([self.interval_s, _LONGEST_WAIT_S, *waits_s]))

    def _on_exit(self) -> None:
        self._exited = True  # still alive while it says so
        self._compose()

    def _refuse(self, problems: Sequence[str]) -> None:
        """Stop start-up over what the user wrote; not where a plugin, or the cache itself, is what is missing."""
        if problems and not self._plugins_failed and not self._init_failed_reason:
            raise ConfigError(*problems)
        for problem in problems:
            log.warning("%s", problem)

    def _take_arrivals(self, now_s: float) -> None:
        while self._arrivals:
            watch, outcome = self._arrivals.popleft()
            if outcome.error is not None:
                self._note_raise(watch, outcome.error)
            if not outcome.result.healthy:
                self._metrics.check_failures.labels(watch.name).inc()
            watch.finish(outcome, now_s)
        if self._wake_requested:
            self._wake_requested = False
            for watch in self._watches:
                watch.request()

    def _submit(self, watch: CheckWatch) -> None:
        def arrive(outcome: Outcome) -> None:
            self._arrivals.append((watch, outcome))
            PeriodicThread.wake(self)

        if not self.stop_requested:
            self._pool.submit(lambda: arrive(run_check(watch.check, watch.reader)))

    def _note_raise(self, watch: CheckWatch, error: BaseException) -> None:
        self._metrics.check_errors.labels(watch.name).inc()
        if watch.reason != describe_error(error):
            log.warning("health check %s failed with %s", watch.name, describe_error(error), exc_info=error)

    def _end_if_irrecoverable(self) -> None:
        for watch in self._watches:
            if watch.irrecoverable and watch.terms.enforce and not self._end_reason:
                reason = f"check {watch.name!r} gave up for ever: {watch.reason}"
                log.critical("%s; the cache only recomputes until it is restarted", reason)
                self._end(reason)

    def _take_look(self) -> _Look:
        now_s = self._clock()
        checks = tuple(watch.report(now_s) for watch in self._watches)
        for check in checks:
            self._metrics.check_healthy.labels(check.name).set(check.state in _PASSING)
        return _Look(
            taken_s=now_s,
            checks=checks,
            beliefs_s=tuple(watch.belief_s for watch in self._watches),
            blocking=tuple(watch.name for watch in self._watches if not self._fallbacks.keeps_serving(watch)),
            awaited=tuple(watch.name for watch in self._watches if watch.holds_up_start),
            reservations=() if self._storage.serving() else (_NOTHING_SERVES,),
        )

    def _compose(self) -> HealthReport:
        """Judge the last look as of now, and move the gate."""
        with self._lock:  # around what is read, too: of two that judge, the later one saw what is later
            bypassed, backends, failed = self._bypassed(), self._backends(), dict(self._plugins_failed)
            look, now_s = self._look, self._clock()
            elapsed_s = max(0.0, now_s - look.taken_s)
            checks = tuple(
                age_check(check, elapsed_s, belief_s)
                for check, belief_s in zip(look.checks, look.beliefs_s, strict=True)
            )
            verdict = self._judge_thread(look, elapsed_s) or judge_checks(
                checks,
                blocking=look.blocking,
                bypassed=bypassed,
                plugins_failed=failed,
                reservations=look.reservations,
            )
            if (verdict.state, verdict.healthy) != (self._verdict.state, self._verdict.healthy):
                self._since_s = now_s
            self._verdict = verdict
            self._healthy = verdict.healthy
            self._metrics.is_healthy.set(verdict.healthy)
            return HealthReport(
                healthy=verdict.healthy,
                state=verdict.state,
                reason=verdict.reason,
                since_s=max(0.0, now_s - self._since_s),
                checks=checks,
                bypassed=bypassed,
                plugins_failed=failed,
                backends=backends,
            )

    def _judge_thread(self, look: _Look, elapsed_s: float) -> Verdict | None:
        """What the state of this thread says, whatever the checks say; None while it does its work."""
        down, unknown = HealthState.DOWN, HealthState.UNKNOWN
        stopping = self.stop_requested  # before why it ends, which is noted first: else that could look like a stop
        stuck = elapsed_s > max(_LEAST_STUCK_S, _INTERVALS_UNTIL_STUCK * self.interval_s)
        grounds = (
            (self._init_failed_reason, down, f"the cache did not initialise: {self._init_failed_reason}"),
            (self._end_reason, down, self._end_reason),
            (self._thread is None, unknown, "the health monitor has not started"),
            (stopping, unknown, "the health monitor is stopped"),
            (self._exited or not self.is_running, down, f"thread {_NAME!r} died; restart the process"),
            (stuck, unknown, f"thread {_NAME!r} is stuck{self._place() if stuck else ''}"),
            (bool(look.awaited), unknown, f"the first round of checks waits for {', '.join(map(repr, look.awaited))}"),
        )
        return next((Verdict(False, state, reason) for holds, state, reason in grounds if holds), None)  # noqa: FBT003 - the record's order

    def _place(self) -> str:
        """Say where the thread stands, such as in a policy's call that does not return."""
        return "" if self._thread is None else where_is(self._thread)[0]

    def _tell(self, report: HealthReport) -> None:
        states = (
            report.healthy,
            report.state,
            *(check.state for check in report.checks),
            *(traffic_of(backend) for backend in report.backends),
        )
        if states == self._told:
            return
        self._told = states
        if self._first_round.is_set():
            log.log(
                logging.INFO if report.healthy else logging.WARNING,
                "health is %s: %s",
                report.state.value,
                report.reason or "all checks pass",
            )
        try:
            self._on_change(report)
        except BaseException as error:  # the border to whoever wants to be told
            log.warning("a listener to health changes failed with %s", describe_error(error), exc_info=error)

    def _summary(self) -> ThreadRunSummary:
        failed = [watch.name for watch in self._watches if watch.failing]
        extra: dict[str, Any] = {
            "total_checks": len(self._watches),
            "failed_checks": failed,
            "bypassed_backends": sorted(self._bypassed()),
        }
        message = f"Failed checks: {failed}" if failed else "All checks passed"
        return ThreadRunSummary(success=not failed, message=message, extra_info=extra)
