"""Health checks under the monitor of another system, which runs them when it likes."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from lmcache_core.config.checks import CheckTable
from lmcache_core.contracts.control import CacheView, HealthOptions
from lmcache_core.contracts.health import CheckResult, HealthCheck, HealthState
from lmcache_core.errors import LMCacheError, PluginError
from lmcache_core.health.blame import Blame
from lmcache_core.health.candidate import Candidate
from lmcache_core.health.create import create_checks
from lmcache_core.health.roster import enlist
from lmcache_core.health.run import Outcome, run_check
from lmcache_core.health.watch import CheckWatch
from lmcache_core.registry.record import Declared
from lmcache_core.registry.watched import OverdueError
from lmcache_core.threads import describe_error
from lmcache_core.workers import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedVerdict:
    """What a check says when it is asked.

    Attributes:
        healthy: False only for a check that is down and enforced.
        state: In full.
        reason: One sentence for people; ``""`` for none.
        irrecoverable: It can never pass again.
        error: What its last run raised, or None.
    """

    healthy: bool
    state: HealthState
    reason: str
    irrecoverable: bool = False
    error: BaseException | None = None


class HostedCheck:
    """One check that another system asks for its verdict, from one thread at a time.

    Everything but the clock is as under this project's own monitor: `interval`, `timeout`, `rise`, `fall`,
    `enforce`, `depends_on` and what ``[[extra_config.checks]]`` says. A check that hangs is failed when its
    timeout is over, keeps nobody waiting after that, and is never started twice.

    Args:
        watch: Its schedule and verdict.
        clock: Monotonic seconds.
    """

    def __init__(self, watch: CheckWatch, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = watch.name
        self.plugin = watch.plugin
        self._watch = watch
        self._clock = clock
        self._error: BaseException | None = None
        self._running: Future[Outcome] | None = None
        self._pool = WorkerPool(f"lmcache-check-{watch.name}", 1)
        weakref.finalize(self, self._pool.close)

    @property
    def ladder(self) -> tuple[str, ...]:
        """Names of its fallback policies, the first to use first."""
        return self._watch.terms.ladder

    @property
    def backend(self) -> str | None:
        """The backend it speaks for."""
        return self._watch.terms.backend

    def ask(self) -> HostedVerdict:
        """Run it where it is due, wait for it at most its timeout, and give its verdict; never raises."""
        watch, now_s = self._watch, self._clock()
        watch.look_around(now_s)
        if watch.is_due(now_s):
            watch.start(now_s)
            self._running = self._begin()
            wait([self._running], timeout=watch.terms.timeout_s)
        self._collect()
        return HostedVerdict(
            healthy=not (watch.failing and watch.terms.enforce),
            state=watch.state,
            reason=watch.reason,
            irrecoverable=watch.irrecoverable,
            error=self._error,
        )

    def _begin(self) -> Future[Outcome]:
        watch = self._watch
        try:
            return self._pool.submit(lambda: run_check(watch.check, watch.reader))
        except RuntimeError as error:  # no thread to be had: this run has failed, and the next one tries again
            failed: Future[Outcome] = Future()
            failed.set_result(Outcome(result=CheckResult(healthy=False, reason=describe_error(error)), error=error))
            return failed

    def _collect(self) -> None:
        if self._running is None:
            return
        if not self._running.done():
            self._watch.tick(self._clock())
            return
        outcome, self._running = self._running.result(), None
        self._error = outcome.error
        self._watch.finish(outcome, self._clock())


def host_checks(
    declared: Sequence[Declared[type[HealthCheck]]],
    view: CacheView,
    *,
    options: HealthOptions,
    tables: Sequence[CheckTable],
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[HostedCheck], dict[str, str]]:
    """Make the checks that apply to a host, sorted by name, and say why others do not.

    Args:
        declared: Classes, and who declared them.
        view: What `HealthCheck.create` gets.
        options: Defaults.
        tables: ``[[extra_config.checks]]``.
        limit_s: Longest that a third party's class may take to make its checks.
        clock: Monotonic seconds.

    Returns:
        The checks; and by class or check name, why it was left out.

    Raises:
        ConfigError: The configuration has checks depend on each other in a circle.
    """
    left_out: dict[str, str] = {}
    usable: dict[str, Candidate] = {}
    for one in declared:
        try:
            made = create_checks(one, view, options=options, tables=tables, limit_s=limit_s)
        except PluginError as error:  # noqa: PERF203 - each plugin fails alone
            left_out[one.value.__name__] = _why(error)
        else:
            for candidate in made:
                _add(candidate, usable, left_out)
    blame = Blame(on_unusable=lambda error, _: left_out.update({f"a check of plugin {error.plugin!r}": error.reason}))
    watches = enlist(list(usable.values()), clock(), blame)
    return [HostedCheck(watch, clock) for watch in watches], left_out


def _why(error: PluginError) -> str:
    """Say what `create` raised, or that it hangs; whose it is, the class's name tells."""
    cause = error.__cause__
    if cause is None or isinstance(cause, OverdueError):
        return str(error)
    return str(cause) if isinstance(cause, LMCacheError) else describe_error(cause)


def _add(candidate: Candidate, usable: dict[str, Candidate], left_out: dict[str, str]) -> None:
    said = candidate.said
    if isinstance(said, PluginError):
        left_out[type(candidate.check).__name__] = said.reason
    elif said.name in usable:
        reason = f"plugin {usable[said.name].plugin!r} has a check of that name"
        left_out[f"{said.name} of plugin {candidate.plugin!r}"] = reason
    else:
        usable[said.name] = candidate
