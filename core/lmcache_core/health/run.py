"""One run of one check: whatever a third party's code does comes back as a record."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass

from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.health import CheckResult, HealthCheck
from lmcache_core.errors import IrrecoverableException
from lmcache_core.threads import describe_error

_PINGS_PER_RUN = 3  # HealthCheck.timeout: None means three times the ping timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTerms:
    """How a check wants to be run and answered, read from its properties once a round.

    Attributes:
        interval_s: Seconds between the starts of two runs, above 0.
        timeout_s: Seconds one run may take, above 0.
        rise: Passing runs in a row that make it healthy, at least 1.
        fall: Failing runs in a row that make it failed, at least 1.
        policy: Name of its fallback policy.
        backend: The backend it speaks for, or None.
    """

    interval_s: float
    timeout_s: float
    rise: int
    fall: int
    policy: str
    backend: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run came to.

    Attributes:
        result: The finding; a failure with a sentence where the check raised or returned nonsense.
        terms: As read in this run; None where they could not be read.
        skipped: The check asked to be left out; `result` means nothing.
        error: What the check raised, or None.
    """

    result: CheckResult
    terms: CheckTerms | None = None
    skipped: bool = False
    error: BaseException | None = None

    @property
    def irrecoverable(self) -> bool:
        """Whether the check can never pass again."""
        return isinstance(self.error, IrrecoverableException)


def read_terms(check: HealthCheck, options: HealthOptions) -> CheckTerms:
    """Read a check's properties, over the configured defaults.

    Raises:
        ValueError: A property has a value that cannot be used; says which and what is due.
    """
    interval_s, timeout_s = check.interval, check.timeout
    backend = check.get_bypass_backend_name()
    if backend is not None and not isinstance(backend, str):
        raise ValueError(f"get_bypass_backend_name must give a name or None, got {backend!r}")
    policy = check.fallback_policy
    if not isinstance(policy, str):
        raise ValueError(f"fallback_policy must be a policy's name, got {policy!r}")  # noqa: TRY004 - one kind for all
    return CheckTerms(
        interval_s=_seconds("interval", options.ping_interval if interval_s is None else interval_s),
        timeout_s=_seconds("timeout", _PINGS_PER_RUN * options.ping_timeout if timeout_s is None else timeout_s),
        rise=_count("rise", check.rise),
        fall=_count("fall", check.fall),
        policy=policy,
        backend=backend,
    )


def run_check(check: HealthCheck, options: HealthOptions) -> Outcome:
    """Run a check once, on the calling thread; never raises."""
    terms: CheckTerms | None = None
    try:
        terms = read_terms(check, options)
        if check.should_skip():
            return Outcome(result=CheckResult(healthy=True), terms=terms, skipped=True)
        return Outcome(result=_as_result(check.check()), terms=terms)
    except BaseException as error:  # noqa: BLE001 - the border of one check: SystemExit once killed a monitor that then read healthy for ever
        return Outcome(result=CheckResult(healthy=False, reason=describe_error(error)), terms=terms, error=error)


def _as_result(value: object) -> CheckResult:
    if isinstance(value, bool):
        return CheckResult(healthy=value, reason="" if value else "check() returned False")
    if isinstance(value, CheckResult):
        return _checked(value)
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that nobody awaited it
        return _nonsense("a coroutine; write a plain def, not async def")
    return _nonsense(f"{type(value).__name__}; return True, False or a CheckResult")


def _checked(result: CheckResult) -> CheckResult:
    healthy: object = result.healthy  # a dataclass holds whatever it was given
    if not isinstance(healthy, bool):
        return _nonsense(f"a CheckResult whose healthy is {type(healthy).__name__}; it must be True or False")
    if not result.healthy and not result.reason:
        return CheckResult(healthy=False, reason="check() gave no reason", details=result.details)
    return result


def _nonsense(what: str) -> CheckResult:
    return CheckResult(healthy=False, reason=f"check() returned {what}")


def _seconds(name: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    raise ValueError(f"{name} must be a finite number of seconds above 0, got {value!r}")


def _count(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
