"""One run of one check: whatever a third party's code does comes back as a record."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace

from lmcache_core.contracts.health import BOTH_SIDES, CheckResult, HealthCheck
from lmcache_core.errors import IrrecoverableException
from lmcache_core.health.terms import CheckTerms, TermReader
from lmcache_core.threads import describe_error


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


def run_check(check: HealthCheck, reader: TermReader) -> Outcome:
    """Run a check once, on the calling thread; never raises."""
    terms: CheckTerms | None = None
    try:
        terms = reader.read(check)
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
    failing: object = result.failing
    if not (isinstance(failing, frozenset) and failing and failing <= BOTH_SIDES):
        return _nonsense(f"a CheckResult whose failing is {failing!r}; it must be a frozenset of reads, writes or both")
    if not result.healthy and not result.reason:
        return replace(result, reason="check() gave no reason")
    return result


def _nonsense(what: str) -> CheckResult:
    return CheckResult(healthy=False, reason=f"check() returned {what}")
