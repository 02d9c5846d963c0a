import pytest
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Options

from lmcache_core import CheckResult, IrrecoverableException
from lmcache_core.health.run import run_check
from lmcache_core.health.terms import TermReader

READER = TermReader(Options(ping_interval=7.0, ping_timeout=2.0))


def test_true_passes() -> None:
    assert run_check(SteeredCheck(), READER).result == CheckResult(healthy=True)


def test_a_result_is_passed_on() -> None:
    result = CheckResult(healthy=True, degraded=True, reason="slow", details={"ms": 9})

    assert run_check(SteeredCheck(run=lambda: result), READER).result is result


async def a_coroutine() -> bool:
    return True


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (False, "check() returned False"),
        (None, "check() returned NoneType; return True, False or a CheckResult"),
        ("ok", "check() returned str; return True, False or a CheckResult"),
        (1, "check() returned int; return True, False or a CheckResult"),
        (CheckResult(healthy=False), "check() gave no reason"),
        (
            CheckResult(healthy="yes"),  # type: ignore[arg-type]
            "check() returned a CheckResult whose healthy is str; it must be True or False",
        ),
    ],
)
def test_anything_else_is_a_failure_with_a_sentence(value: object, reason: str) -> None:
    outcome = run_check(SteeredCheck(run=lambda: value), READER)

    assert (outcome.result.healthy, outcome.result.reason) == (False, reason)


def test_a_coroutine_is_a_failure_although_it_is_truthy() -> None:
    """An ``async def check`` once meant healthy."""
    outcome = run_check(SteeredCheck(run=a_coroutine), READER)

    assert (outcome.result.healthy, outcome.result.reason) == (
        False,
        "check() returned a coroutine; write a plain def, not async def",
    )


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt("stop")])
def test_whatever_a_check_raises_is_a_failure(error: BaseException) -> None:
    def run() -> bool:
        raise error

    outcome = run_check(SteeredCheck(run=run), READER)

    assert outcome.error is error
    assert outcome.result == CheckResult(healthy=False, reason=f"{type(error).__name__}: {error}")
    assert not outcome.irrecoverable


def test_an_irrecoverable_exception_is_one() -> None:
    def run() -> bool:
        raise IrrecoverableException("the disk is gone")

    assert run_check(SteeredCheck(run=run), READER).irrecoverable


def test_should_skip_skips_the_check() -> None:
    check = SteeredCheck(skip=True)
    outcome = run_check(check, READER)

    assert (outcome.skipped, check.runs) == (True, 0)


def test_an_exception_of_should_skip_is_a_failure_of_its_check() -> None:
    def skip() -> bool:
        raise RuntimeError("cannot tell")

    outcome = run_check(SteeredCheck(skip=skip), READER)

    assert outcome.result == CheckResult(healthy=False, reason="RuntimeError: cannot tell")


def test_a_term_that_turns_bad_later_is_a_failure() -> None:
    outcome = run_check(SteeredCheck(interval=-1), READER)

    assert outcome.terms is None
    assert outcome.result.reason == "ValueError: interval must be a finite number of seconds above 0, got -1"
