"""Calls of fallback policies: of each third party's one at a time, waited for so long and no longer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from lmcache_core.registry.watched import OverdueError, WatchedCall
from lmcache_core.threads import describe_error

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Call:
    what: str
    check: str
    watched: WatchedCall[object]
    since: str


class PolicyCalls:
    """Has policies engage and release, a third party's on a thread of its own. Only the monitor's thread calls.

    While a call hangs, nothing else is asked of that policy. So no release overtakes an engagement, and what an
    engagement does late is released after it. What came of a call that returned late counts when the same is
    wanted the next time, so that a slow policy gets there too.

    Args:
        limit_s: Longest that anybody waits for a call.
        on_late: Told, on the call's thread, that one has returned after all.
        builtin: Policies that only throw switches, and need no thread: that could be what there is none of.
    """

    def __init__(self, limit_s: float, on_late: Callable[[], None], builtin: Collection[str] = ()) -> None:
        self._limit_s = limit_s
        self._builtin = builtin
        self._on_late = on_late
        self._overdue: dict[str, _Call] = {}  # by policy; the one that hangs, or has ended since
        self._late: dict[tuple[str, str], _Call] = {}  # by policy and check; what has ended and nobody asked for yet

    def call(self, policy: str, action: str, check: str, do: Callable[[], object]) -> None:
        """Call a policy, or take what came of the same call that was overdue.

        Args:
            policy: Its name.
            action: ``engage`` or ``release``.
            check: Name of the check it is about.
            do: Calls it.

        Raises:
            TimeoutError: It, or an earlier call of this policy, is still running; says where it stands.
            BaseException: Whatever the policy raised.
        """
        if policy in self._builtin:
            do()
            return
        self._take_late(policy)
        earlier = self._late.pop((policy, check), None)
        what = f"{action}({check})"
        if earlier is not None and earlier.what == what:
            earlier.watched.outcome()
            return
        watched: WatchedCall[object] = WatchedCall(
            do, target=f"{policy}.{what}", on_late=partial(self._tell_late, f"fallback policy {policy!r}: {what}")
        )
        try:
            watched.wait(self._limit_s)
        except OverdueError as error:
            self._overdue[policy] = _Call(what, check, watched, error.since)
            raise TimeoutError(f"{what} is still running {error.since}") from error

    def _take_late(self, policy: str) -> None:
        overdue = self._overdue.get(policy)
        if overdue is None:
            return
        if overdue.watched.hangs:
            raise TimeoutError(f"{overdue.what} is still running {overdue.since}")
        del self._overdue[policy]
        self._late[policy, overdue.check] = overdue

    def _tell_late(self, whose: str, outcome: Callable[[], object]) -> None:
        try:
            outcome()
        except BaseException as error:
            log.warning("%s has ended after all, with %s", whose, describe_error(error), exc_info=error)
        else:
            log.warning("%s has returned after all", whose)
        self._on_late()
