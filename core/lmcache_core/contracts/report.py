"""The monitor's whole verdict, as pages, commands and plugins see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lmcache_core.contracts.health import HealthState


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """One check's verdict. Times are seconds.

    Attributes:
        name: The check's.
        plugin: Who declared it.
        backend: The backend it speaks for, or None.
        state: The verdict after rise and fall.
        reason: One sentence; ``""`` when there is nothing to say.
        policy: Fallback policy chosen for it.
        engaged: Whether the policy is engaged now.
        since_s: For how long it has been in this state.
        age_s: Since the last run ended; None before the first.
        next_run_s: Until the next run; 0 when due or running.
        details: Evidence.
    """

    name: str
    plugin: str
    backend: str | None
    state: HealthState
    reason: str
    policy: str
    engaged: bool
    since_s: float
    age_s: float | None
    next_run_s: float
    details: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The whole verdict.

    Attributes:
        healthy: What the engine's gate reads.
        state: UP, DEGRADED (serving with a reservation), DOWN or UNKNOWN.
        reason: One sentence that names who and why; ``""`` when up.
        since_s: For how long the system has been in this state.
        checks: All checks, by name.
        bypassed: Backend name to the owners that hold it out.
        plugins_failed: Plugin name to why it did not load.
    """

    healthy: bool
    state: HealthState
    reason: str
    since_s: float
    checks: tuple[CheckReport, ...] = ()
    bypassed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plugins_failed: Mapping[str, str] = field(default_factory=dict)
