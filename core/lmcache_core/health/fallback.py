"""Engages a fallback policy while a check fails, and releases it once the check passes."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from lmcache_core.contracts.control import StorageControl
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.errors import ConfigError
from lmcache_core.health.blame import Blame
from lmcache_core.health.policy_calls import PolicyCalls
from lmcache_core.health.stand_in import StandIn
from lmcache_core.health.watch import CheckWatch
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.registry.watched import OverdueError, WatchedCall
from lmcache_core.threads import describe_error

log = logging.getLogger(__name__)

_RECOMPUTES = "everything is recomputed while the check fails"
_CALL_LIMIT_S = 2.0  # all other checks wait for so long, and the monitor must not seem stuck


class Fallbacks:
    """Keeps policies and checks in step. Only the monitor's thread calls `settle`.

    Args:
        policies: By name.
        storage: The switches that policies throw.
        metrics: Where a policy's exceptions are counted.
        limit_s: Longest that a policy may take to say at start-up whether it can serve a check; and, as far as that
            is less than 2 s, to be engaged or released.
        on_late: Told that a policy's call which nobody waited for any more has returned: `settle` may get further.
        builtin: Names of the policies that are no third party's: they are called without a thread.
    """

    def __init__(
        self,
        policies: Mapping[str, FallbackPolicy],
        storage: StorageControl,
        metrics: CacheMetrics,
        *,
        limit_s: float = 10.0,
        on_late: Callable[[], None] = lambda: None,
        builtin: Collection[str] = (),
    ) -> None:
        self._policies = policies
        self._storage = storage
        self._metrics = metrics
        self._limit_s = limit_s
        self._calls = PolicyCalls(min(limit_s, _CALL_LIMIT_S), on_late, builtin)
        self._builtin = builtin
        self._refused: dict[tuple[str, str], str] = {}  # why, by check and policy

    def validate(self, watches: Iterable[CheckWatch], blame: Blame) -> None:
        """Find, at start-up, what is not there or could do nothing for a check, and put it where it belongs.

        A plugin's check runs all the same: what was to answer for it must not look like protection, so
        everything is recomputed while it fails.

        Raises:
            ConfigError: Something is the user's fault, or was already when checks were enlisted.
        """
        backends = self._storage.backend_names()
        for watch in watches:
            for name, fault, configured in self._faults(watch, backends):
                reason = f"health check {watch.name!r}: {fault}"
                over = [watch.name, name, *filter(None, [watch.terms.backend])]
                blame.put(watch.error(reason), _RECOMPUTES, over=over, configured=configured)
                if self._serves(name):
                    self._refused[watch.name, name] = reason
        blame.settle()

    def keeps_serving(self, watch: CheckWatch) -> bool:
        """Tell whether the system may serve although, or as, this check stands as it does."""
        if watch.policy_problem or (watch.irrecoverable and watch.terms.enforce):
            return False
        if not watch.answered:
            return True
        return watch.engaged and self._serves(watch.engaged_policy or "")

    def _reservation(self, watch: CheckWatch) -> str:
        """Say that a policy is engaged which does not help with what fails; ``""`` where it does."""
        name = watch.engaged_policy
        if name is None or not watch.answered or self._helps(watch, name):
            return ""
        fails = " and ".join(sorted(watch.result.failing))
        return f"{fails} fail, which policy {name!r} does not help with; add another one to fallback_policy"

    def settle(self, watch: CheckWatch, now_s: float) -> None:
        """Bring the policy in line with the verdict; what fails is tried again the next time."""
        if watch.irrecoverable:
            return
        wanted = self._wanted(watch, now_s)
        if watch.engaged_policy != wanted or watch.policy_problem:
            self._change(watch, wanted)
        watch.policy_note = self._reservation(watch)

    def _change(self, watch: CheckWatch, wanted: str | None) -> None:
        try:
            if watch.engaged_policy is not None and watch.engaged_policy != wanted:
                watch.engaged = False
                self._call(watch, watch.engaged_policy, "release")
                watch.engaged_policy = None
            if wanted is not None:
                self._engage(watch, wanted)
        except BaseException as error:  # noqa: BLE001 - the border of one policy: none may end the monitor, and none may fail unseen
            self._note_problem(watch, error)
        else:
            watch.policy_problem = ""

    def _wanted(self, watch: CheckWatch, now_s: float) -> str | None:
        """Name the policy that should be engaged now; None for none."""
        if watch.maintenance and watch.failing:
            # The operator decides. What was engaged before he came stays: CPU memory that a policy switched on
            # is what the cache serves from now.
            return watch.engaged_policy
        if not watch.answered:
            watch.ladder.reset()
            return None
        return watch.ladder.choose(
            watch.terms.ladder,
            helps=lambda name: self._helps(watch, name),
            lasting_s=watch.terms.ladder_s,
            now_s=now_s,
        )

    def _helps(self, watch: CheckWatch, name: str) -> bool:
        policy = self._policies.get(name)
        return policy is None or policy.answers >= watch.result.failing

    def _engage(self, watch: CheckWatch, wanted: str) -> None:
        if (watch.name, wanted) in self._refused:
            raise watch.error(self._refused[watch.name, wanted])
        if wanted not in self._policies:
            raise LookupError(unknown_policy(wanted, self._policies))
        watch.engaged_policy = wanted  # before the call: half an engagement has to be released as well
        self._call(watch, wanted, "engage")
        watch.engaged = True

    def _call(self, watch: CheckWatch, name: str, action: str) -> None:
        method = getattr(self._policies[name], action)
        check = StandIn(watch.name, watch.terms) if name in self._builtin else watch.check
        self._calls.call(name, action, watch.name, partial(method, check, self._storage))

    def _note_problem(self, watch: CheckWatch, error: BaseException) -> None:
        self._metrics.check_errors.labels(watch.name).inc()
        name = watch.engaged_policy or watch.terms.ladder[0]
        problem = f"fallback policy {name!r} failed with {describe_error(error)}"
        if problem != watch.policy_problem:
            log.error("health check %s: %s; the cache stays off until it succeeds", watch.name, problem, exc_info=error)
        watch.policy_problem = problem

    def _faults(self, watch: CheckWatch, backends: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
        """Give, for each policy that cannot answer, its name, why, and whether ``[[extra_config.checks]]`` chose it."""
        backend = watch.terms.backend
        missing = backend is not None and backend not in backends
        for name in watch.terms.ladder:
            if missing:
                yield name, f"backend {backend!r} is not there{_nearest(str(backend), backends)}", False
            elif objection := self._object_to(name, watch, tier_0=backend == backends[0]):
                yield name, objection, "fallback_policy" in watch.reader.configured

    def _serves(self, name: str) -> bool:
        policy = self._policies.get(name)
        return policy is not None and policy.keeps_serving

    def _object_to(self, name: str, watch: CheckWatch, *, tier_0: bool) -> str:
        policy = self._policies.get(name)
        if policy is None:
            return unknown_policy(name, self._policies)
        if policy.keeps_serving and tier_0:
            return f"backend {watch.terms.backend!r} is tier 0, which cannot be left out; use policy 'recompute'"
        return self._ask(policy, name, watch)

    def _ask(self, policy: FallbackPolicy, name: str, watch: CheckWatch) -> str:
        """Have a policy object to a check; one that raises or hangs is used all the same, and says so in the log."""
        if type(policy).objection is FallbackPolicy.objection:
            return ""
        target = f"policy {name}"
        if WatchedCall.find_given_up(target) is not None:
            return self._use_unasked(name, watch, "is not called, as an earlier call is still running")
        call: WatchedCall[str | None] = WatchedCall(
            partial(policy.objection, watch.check), target=target, on_late=_ignore
        )
        try:
            return call.wait(self._limit_s) or ""
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the border of one policy; logged below
            what = (
                f"is still running {error.since}"
                if isinstance(error, OverdueError)
                else f"raised {describe_error(error)}"
            )
            return self._use_unasked(name, watch, what, error)

    def _use_unasked(self, name: str, watch: CheckWatch, what: str, error: BaseException | None = None) -> str:
        log.warning("fallback policy %r is used unasked: objection(%s) %s", name, watch.name, what, exc_info=error)
        self._metrics.check_errors.labels(watch.name).inc()
        return ""


def _ignore(_outcome: Callable[[], object]) -> None:
    """An objection that comes too late is dropped: the policy is in use."""


def unknown_policy(name: str, known: Iterable[str]) -> str:
    """Say that no plugin brings a policy, and which one may be meant."""
    return f"fallback policy {name!r} is not known{_nearest(name, known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}"
    return f"; known: {', '.join(names)}" if names else "; none is loaded"
