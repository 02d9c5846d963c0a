"""Engages a fallback policy while a check fails, and releases it once the check passes."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping, Sequence

from lmcache_core.contracts.control import StorageControl
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.errors import ConfigError
from lmcache_core.health.watch import CheckWatch
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.threads import describe_error

log = logging.getLogger(__name__)


class Fallbacks:
    """Keeps policies and checks in step. Only the monitor's thread calls `settle`.

    Args:
        policies: By name.
        storage: The switches that policies throw.
        metrics: Where a policy's exceptions are counted.
    """

    def __init__(self, policies: Mapping[str, FallbackPolicy], storage: StorageControl, metrics: CacheMetrics) -> None:
        self._policies = policies
        self._storage = storage
        self._metrics = metrics

    def validate(self, watches: Iterable[CheckWatch]) -> None:
        """Refuse, at start-up, a policy that is not there or could do nothing.

        Raises:
            ConfigError: One sentence for each check.
        """
        backends = self._storage.backend_names()
        problems = [problem for watch in watches if (problem := self._objection(watch, backends))]
        if problems:
            raise ConfigError(*problems)

    def keeps_serving(self, watch: CheckWatch) -> bool:
        """Tell whether the system may serve although, or as, this check stands as it does."""
        if watch.irrecoverable or watch.policy_problem:
            return False
        if not watch.failing:
            return True
        policy = self._policies.get(watch.terms.policy)
        return policy is not None and policy.keeps_serving and watch.engaged

    def settle(self, watch: CheckWatch) -> None:
        """Bring the policy in line with the verdict; what fails is tried again the next time."""
        wanted = watch.terms.policy if watch.failing and not watch.irrecoverable else None
        if watch.irrecoverable or (watch.engaged_policy == wanted and not watch.policy_problem):
            return
        try:
            if watch.engaged_policy is not None and watch.engaged_policy != wanted:
                watch.engaged = False
                self._policies[watch.engaged_policy].release(watch.check, self._storage)
                watch.engaged_policy = None
            if wanted is not None:
                self._engage(watch, wanted)
        except BaseException as error:  # noqa: BLE001 - the border of one policy: none may end the monitor, and none may fail unseen
            self._note_problem(watch, error)
        else:
            watch.policy_problem = ""

    def _engage(self, watch: CheckWatch, wanted: str) -> None:
        policy = self._policies.get(wanted)
        if policy is None:
            raise LookupError(unknown_policy(wanted, self._policies))
        watch.engaged_policy = wanted  # before the call: half an engagement has to be released as well
        policy.engage(watch.check, self._storage)
        watch.engaged = True

    def _note_problem(self, watch: CheckWatch, error: BaseException) -> None:
        self._metrics.check_errors.labels(watch.name).inc()
        problem = f"fallback policy {watch.engaged_policy or watch.terms.policy!r} failed with {describe_error(error)}"
        if problem != watch.policy_problem:
            log.error("health check %s: %s; the cache stays off until it succeeds", watch.name, problem, exc_info=error)
        watch.policy_problem = problem

    def _objection(self, watch: CheckWatch, backends: Sequence[str]) -> str:
        who = f"health check {watch.name!r} (plugin {watch.plugin!r})"
        backend = watch.terms.backend
        if backend is not None and backend not in backends:
            return f"{who}: backend {backend!r} is not there{_nearest(backend, backends)}"
        policy = self._policies.get(watch.terms.policy)
        if policy is None:
            return f"{who}: {unknown_policy(watch.terms.policy, self._policies)}"
        if policy.keeps_serving and backend == backends[0]:
            return f"{who}: backend {backend!r} is tier 0, which cannot be left out; use policy 'recompute'"
        objection = policy.objection(watch.check)
        return f"{who}: {objection}" if objection else ""


def unknown_policy(name: str, known: Iterable[str]) -> str:
    """Say that no plugin brings a policy, and which one may be meant."""
    return f"fallback policy {name!r} is not known{_nearest(name, known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}"
    return f"; known: {', '.join(names)}" if names else "; none is loaded"
