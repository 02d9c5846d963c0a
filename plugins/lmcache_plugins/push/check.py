"""Judges the last report that somebody outside has made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmcache_core import CacheView, CheckResult, HealthCheck, PushedReport, PushHealthCheck
from lmcache_plugins.push.settings import PushCheckSettings, PushSettings

_LOOKS_PER_TTL = 4
_LONGEST_INTERVAL_S = 1.0  # a look costs nothing; a report that has run out is noticed so late at most


@dataclass(frozen=True, slots=True)
class _Taken:
    report: PushedReport
    at_s: float


class PushedHealthCheck(PushHealthCheck):
    """A check that passes while a fresh report says so.

    Before the first report it is degraded, for as long as a report holds; from then on a lack of
    reports is a failure: who should tell is gone.

    Args:
        settings: Its entry in the configuration.
        policy: Name of its fallback policy, or several, a ladder.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        settings: PushCheckSettings,
        policy: str | Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._clock = clock
        self._made_s = clock()
        self._taken: _Taken | None = None  # replaced as a whole, so that no lock is needed

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make one check for each entry of the configuration."""
        settings = manager.settings(PushSettings.table)
        if not isinstance(settings, PushSettings):
            return []
        default = manager.health_options.fallback_policy
        return [cls(one, default if one.policy is None else one.policy) for one in settings.checks]

    def name(self) -> str:
        """Give the configured name."""
        return self._settings.name

    @property
    def fallback_policy(self) -> str | Sequence[str]:
        """The configured one."""
        return self._policy

    def get_bypass_backend_name(self) -> str | None:
        """Name the store it speaks for."""
        return self._settings.backend

    @property
    def interval(self) -> float:
        """A second, or less where reports hold only for a few."""
        return min(_LONGEST_INTERVAL_S, self._settings.ttl_s / _LOOKS_PER_TTL)

    def take_report(self, report: PushedReport) -> float:
        """Keep a report in place of the last one."""
        self._taken = _Taken(report, self._clock())
        return self._settings.ttl_s

    def check(self) -> CheckResult:
        """Judge the last report."""
        taken, now_s, ttl_s = self._taken, self._clock(), self._settings.ttl_s
        if taken is None:
            left_s = self._made_s + ttl_s - now_s
            if left_s > 0:
                reason = f"no report yet; the first is due within {left_s:.0f} s"
                return CheckResult(healthy=True, degraded=True, reason=reason)
            return CheckResult(healthy=False, reason=f"no report since the start, {now_s - self._made_s:.0f} s ago")
        age_s = now_s - taken.at_s
        details = {**taken.report.details, "report_age_s": round(age_s, 1)}
        if age_s > ttl_s:
            said = "healthy" if taken.report.healthy else f"not healthy: {taken.report.reason}"
            reason = f"the last report ({said}) is {age_s:.0f} s old and held for {ttl_s:g} s; is its sender alive?"
            return CheckResult(healthy=False, reason=reason, details=details)
        report = taken.report
        return CheckResult(healthy=report.healthy, reason=report.reason, degraded=report.degraded, details=details)
