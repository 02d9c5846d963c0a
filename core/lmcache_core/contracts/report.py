"""The monitor's whole verdict, as pages, commands and plugins see it. Times are seconds, counted when it is made."""

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
        details: Evidence. A number named ``<what>_in_s`` is the time, from the run on, until something happens.
        rule: One sentence: what makes it fail and pass, and how often it runs.
        passes: Passing runs in a row.
        fails: Failing runs in a row.
        enforced: False: it is only observed, and its failures stop nothing.
        group: Its group; ``""`` for none.
        ladder: All policies chosen for it, where there are several; `policy` is the one used now.
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
    rule: str = ""
    passes: int = 0
    fails: int = 0
    enforced: bool = True
    group: str = ""
    ladder: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldReport:
    """Who leaves a backend out.

    Attributes:
        owner: ``operator:<name>``, or the check whose policy holds it.
        reason: One sentence; ``""`` for none.
        reads: Whether lookups and loads leave it out.
        writes: Whether stores leave it out.
        draining: What waits to be written is still written, and nothing new is taken.
        left_s: Until it ends by itself; None when only its owner ends it.
    """

    owner: str
    reason: str
    reads: bool
    writes: bool
    draining: bool = False
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSummary:
    """Where a backend's circuit breaker stands.

    Attributes:
        state: ``closed``, ``open``, ``half_open`` or ``ramp``.
        since_s: For how long.
        reason: What opened it last; ``""`` while it has never opened.
        next_trial_s: Until the next trial may start; 0 unless open.
        opened: How often it has opened.
        bad_calls: Failed or slow calls in its window.
        calls: Calls in its window.
        share: Of the calls it admits, 0 to 1.
        rule: One sentence: what opens it and how it closes.
    """

    state: str
    since_s: float
    reason: str = ""
    next_trial_s: float = 0.0
    opened: int = 0
    bad_calls: int = 0
    calls: int = 0
    share: float = 1.0
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingReport:
    """The last ping of a backend.

    Attributes:
        code: 0 success, -1 timeout, -2 another error.
        latency_ms: How long it took.
        age_s: Since it ended.
    """

    code: int
    latency_ms: float
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The last failure of live traffic on a backend.

    Attributes:
        call: ``load`` or ``store``.
        reason: What the backend said.
        age_s: Since then.
    """

    call: str
    reason: str
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """How one store behind tier 0 stands.

    Attributes:
        name: Such as ``RemoteBackend``.
        url: Address without credentials.
        holds: Who leaves it out.
        breaker: Whether its own failures do.
        load_failures: Loads and lookups that failed since start; misses never count.
        last_ping: None before the first.
        last_failure: None before the first.
        waiting_chunks: Chunks that wait to be written to it.
    """

    name: str
    url: str
    breaker: BreakerSummary
    holds: tuple[HoldReport, ...] = ()
    load_failures: int = 0
    last_ping: PingReport | None = None
    last_failure: FailureReport | None = None
    waiting_chunks: int = 0


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
        plugins_failed: Plugin name to why it did not load, or what it could not make.
        backends: The stores behind tier 0, in order.
    """

    healthy: bool
    state: HealthState
    reason: str
    since_s: float
    checks: tuple[CheckReport, ...] = ()
    bypassed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plugins_failed: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[BackendReport, ...] = ()
