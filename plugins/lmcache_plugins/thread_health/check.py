"""Looks at the background threads: whether each is alive and gets on with its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lmcache_core import CacheView, CheckResult, HealthCheck, ThreadReport
from lmcache_plugins.thread_health.settings import ThreadHealthSettings

_CRITICAL = "critical"
_INTERVALS_UNTIL_STUCK = 3


class ThreadHealthCheck(HealthCheck):
    """The health of the threads of one kind, each named when it is dead or stuck.

    A dead critical thread stops the cache. The others, those that feed usage telemetry among them, are observed
    only: the check says so and the cache serves on.

    Args:
        threads: Tells how all background threads fare.
        settings: What is still normal.
        critical: Whether it looks at the critical threads, or at all others.
    """

    def __init__(
        self, threads: Callable[[], Sequence[ThreadReport]], settings: ThreadHealthSettings, *, critical: bool
    ) -> None:
        self._threads = threads
        self._settings = settings
        self._critical = critical

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make one check of the critical threads and one of the others."""
        settings = manager.settings(ThreadHealthSettings.table)
        known = settings if isinstance(settings, ThreadHealthSettings) else ThreadHealthSettings()
        return [cls(manager.threads, known, critical=critical) for critical in (True, False)]

    def name(self) -> str:
        """Give the kind in brackets."""
        return f"ThreadHealthCheck({_CRITICAL if self._critical else 'other'})"

    @property
    def enforce(self) -> bool:
        """Only critical threads stop the cache."""
        return self._critical

    def check(self) -> CheckResult:
        """Look at each."""
        threads = [thread for thread in self._threads() if (thread.level == _CRITICAL) == self._critical]
        problems = [problem for thread in threads if (problem := self._problem(thread))]
        details = {"threads": len(threads)}
        if problems:
            return CheckResult(healthy=False, reason="; ".join(problems), details=details)
        failed = [
            f"thread {thread.name!r} failed in its last run: {thread.reason}" for thread in threads if thread.reason
        ]
        return CheckResult(healthy=True, degraded=bool(failed), reason="; ".join(failed), details=details)

    def _problem(self, thread: ThreadReport) -> str:
        why = f" ({thread.reason})" if thread.reason else ""
        if not thread.is_alive:
            return f"thread {thread.name!r} died{why}; restart the process"
        if thread.silent_s > max(self._settings.stuck_after_secs, _INTERVALS_UNTIL_STUCK * thread.interval_s):
            return f"thread {thread.name!r} is stuck for {thread.silent_s:.0f} s{why}"
        return ""
