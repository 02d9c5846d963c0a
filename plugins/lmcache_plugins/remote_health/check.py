"""Asks a store behind tier 0 whether it works, in five steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from lmcache_core import (
    BackendError,
    BackendTimeoutError,
    CacheView,
    CheckResult,
    HealthCheck,
    Tier,
)
from lmcache_plugins.remote_health.probe import RoundTripProbe
from lmcache_plugins.remote_health.window import FailureWindow

Details: TypeAlias = "dict[str, str | int | float | bool | None]"

_STEPS_UNDER_TIMEOUT = 5  # ping, delete, store, load, delete
_SLACK = 1.1  # for what lies between the steps

_PING_SUCCESS_CODE = 0
_PING_TIMEOUT_CODE = -1
_PING_GENERIC_CODE = -2


class RemoteBackendHealthCheck(HealthCheck):
    """The health of one store: connection, ping, load failures of live traffic, and a round trip.

    1. The ping connects by itself, so a store that was away is found again.
    2. After too many failed loads it stays failed for the waiting time, and passes then only with a
       round trip. It is still pinged meanwhile, so that the ping metrics stay fresh.
    3. Failed loads within one interval that reach the threshold fail it.
    4. The ping.
    5. Put, get, compare and delete, with a key of this instance's own.

    Args:
        tier: The store.
        name: Of the check; unique, without credentials.
        clock: Seconds that never go back.
    """

    def __init__(self, tier: Tier, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._tier = tier
        self._name = name
        self._clock = clock
        self._probe = RoundTripProbe(tier)
        self._window = FailureWindow(tier.options.ping_interval, tier.load_failures, clock())
        self._interval_s = tier.options.ping_interval
        self._refusals = FailureWindow(self._interval_s, tier.refused_writes, clock())
        self._failed_s: float | None = None
        self._failed_loads = 0

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        """Make one check for each store behind tier 0; two of one address are told apart by tier name."""
        of_url = Counter(tier.url for tier in manager.tiers)
        return [
            cls(tier, f"{cls.__name__}({tier.url if of_url[tier.url] == 1 else f'{tier.url}, {tier.name}'})")
            for tier in manager.tiers
        ]

    def name(self) -> str:
        """Give the address without credentials, in brackets."""
        return self._name

    @property
    def fallback_policy(self) -> str | Sequence[str]:
        """The store's own, or the configured one."""
        return self._tier.options.fallback_policy

    @property
    def policy_ladder_secs(self) -> float:
        """The store's own, or the configured one."""
        return self._tier.options.policy_ladder_secs

    def get_bypass_backend_name(self) -> str:
        """Name the store itself."""
        return self._tier.name

    @property
    def interval(self) -> float:
        """The store's own ``ping_interval``, or the configured one."""
        return self._tier.options.ping_interval

    @property
    def timeout(self) -> float:
        """Room for the five calls of a run, each under ``ping_timeout``."""
        return _STEPS_UNDER_TIMEOUT * self._tier.options.ping_timeout * _SLACK

    def check(self) -> CheckResult:
        """Run the five steps."""
        self._note_load_failures()
        details: Details = {"load_failures": self._tier.load_failures}
        ping = self._ping(details)
        if not ping.healthy:
            return ping
        waiting_s = self._waiting_s()
        if waiting_s >= 0:
            details["recovery_in_s"] = round(waiting_s, 3)
            reason = self._waiting_reason(waiting_s)
            return replace(ping, healthy=False, reason=reason, failing=frozenset({"reads"}))
        result = self._probe.run(self._tier.options.ping_timeout)
        details["round_trip"] = result.healthy
        if result.healthy and self._failed_s is not None:
            self._failed_s = None
            self._window.restart(self._tier.load_failures, self._clock())
        return self._with_reservations(replace(result, details=details), details)

    def _with_reservations(self, result: CheckResult, details: Details) -> CheckResult:
        """Add what does not fail the store: writes refused for lack of room, and what will surprise later."""
        refused = self._refusals.growth(self._tier.refused_writes, self._clock())
        details["refused_writes"] = self._tier.refused_writes
        notices = tuple(self._tier.notices())
        if notices:
            details["notices"] = "; ".join(notices)
        if not result.healthy:
            return result
        if refused and not result.degraded:
            reason = f"takes no writes, reads go on: {refused} stores had no room within {self._interval_s:g} s"
            result = replace(result, degraded=True, reason=reason)
        return result if result.reason or not notices else replace(result, reason="; ".join(notices))

    def _note_load_failures(self) -> None:
        options, now_s = self._tier.options, self._clock()
        failures = self._tier.load_failures
        grown = self._window.growth(failures, now_s)
        if grown >= options.get_blocking_failed_threshold:
            self._failed_s = now_s
            self._failed_loads = grown
            self._window.restart(failures, now_s)

    def _waiting_s(self) -> float:
        """Seconds until a recovery is tried; below 0 where nothing is waited for."""
        if self._failed_s is None:
            return -1.0
        return self._tier.options.waiting_time_for_recovery - (self._clock() - self._failed_s)

    def _waiting_reason(self, left_s: float) -> str:
        options = self._tier.options
        return (
            f"{self._failed_loads} loads failed within {options.ping_interval:g} s "
            f"(get_blocking_failed_threshold {options.get_blocking_failed_threshold}); "
            f"a recovery is tried in {left_s:.0f} s"
        )

    def _ping(self, details: Details) -> CheckResult:
        try:
            details["ping_ms"] = round(self._tier.ping(timeout_s=self._tier.options.ping_timeout), 3)
        except BackendError as error:
            timed_out = isinstance(error, BackendTimeoutError)
            details["ping_code"] = _PING_TIMEOUT_CODE if timed_out else _PING_GENERIC_CODE
            return CheckResult(healthy=False, reason=str(error), details=details)
        details["ping_code"] = _PING_SUCCESS_CODE
        return CheckResult(healthy=True, details=details)
