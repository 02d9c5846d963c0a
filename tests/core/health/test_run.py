import pytest
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Options

from lmcache_core import CheckResult, IrrecoverableException
from lmcache_core.health.run import CheckTerms, read_terms, run_check

OPTIONS = Options(ping_interval=7.0, ping_timeout=2.0)


def test_terms_default_to_the_configuration() -> None:
    assert read_terms(SteeredCheck(), OPTIONS) == CheckTerms(
        interval_s=7.0, timeout_s=6.0, rise=1, fall=1, policy="recompute", backend=None
    )


def test_terms_of_the_check_win() -> None:
    check = SteeredCheck(interval=1, timeout=0.5, rise=2, fall=3, policy="local_cpu", backend="RemoteBackend")

    assert read_terms(check, OPTIONS) == CheckTerms(
        interval_s=1.0, timeout_s=0.5, rise=2, fall=3, policy="local_cpu", backend="RemoteBackend"
    )


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"interval": -5}, "interval must be a finite number of seconds above 0, got -5"),
        ({"interval": 0.0}, "interval must be a finite number of seconds above 0, got 0.0"),
        ({"interval": float("nan")}, "interval must be a finite number of seconds above 0, got nan"),
        ({"interval": True}, "interval must be a finite number of seconds above 0, got True"),
        ({"timeout": "5"}, "timeout must be a finite number of seconds above 0, got '5'"),
        ({"timeout": float("inf")}, "timeout must be a finite number of seconds above 0, got inf"),
        ({"rise": 0}, "rise must be a whole number of at least 1, got 0"),
        ({"fall": 1.5}, "fall must be a whole number of at least 1, got 1.5"),
        ({"policy": None}, "fallback_policy must be a policy's name, got None"),
        ({"backend": 3}, "get_bypass_backend_name must give a name or None, got 3"),
    ],
)
def test_a_term_that_cannot_be_used_is_refused(terms: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_terms(SteeredCheck(**terms), OPTIONS)

    assert str(caught.value) == sentence


def test_true_passes() -> None:
    assert run_check(SteeredCheck(), OPTIONS).result == CheckResult(healthy=True)


def test_a_result_is_passed_on() -> None:
    result = CheckResult(healthy=True, degraded=True, reason="slow", details={"ms": 9})

    assert run_check(SteeredCheck(run=lambda: result), OPTIONS).result is result


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
    outcome = run_check(SteeredCheck(run=lambda: value), OPTIONS)

    assert (outcome.result.healthy, outcome.result.reason) == (False, reason)


def test_a_coroutine_is_a_failure_although_it_is_truthy() -> None:
    """An ``async def check`` once meant healthy."""
    outcome = run_check(SteeredCheck(run=a_coroutine), OPTIONS)

    assert (outcome.result.healthy, outcome.result.reason) == (
        False,
        "check() returned a coroutine; write a plain def, not async def",
    )


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt("stop")])
def test_whatever_a_check_raises_is_a_failure(error: BaseException) -> None:
    def run() -> bool:
        raise error

    outcome = run_check(SteeredCheck(run=run), OPTIONS)

    assert outcome.error is error
    assert outcome.result == CheckResult(healthy=False, reason=f"{type(error).__name__}: {error}")
    assert not outcome.irrecoverable


def test_an_irrecoverable_exception_is_one() -> None:
    def run() -> bool:
        raise IrrecoverableException("the disk is gone")

    assert run_check(SteeredCheck(run=run), OPTIONS).irrecoverable


def test_should_skip_skips_the_check() -> None:
    check = SteeredCheck(skip=True)
    outcome = run_check(check, OPTIONS)

    assert (outcome.skipped, check.runs) == (True, 0)


def test_an_exception_of_should_skip_is_a_failure_of_its_check() -> None:
    def skip() -> bool:
        raise RuntimeError("cannot tell")

    outcome = run_check(SteeredCheck(skip=skip), OPTIONS)

    assert outcome.result == CheckResult(healthy=False, reason="RuntimeError: cannot tell")


def test_a_term_that_turns_bad_later_is_a_failure() -> None:
    outcome = run_check(SteeredCheck(interval=-1), OPTIONS)

    assert outcome.terms is None
    assert outcome.result.reason == "ValueError: interval must be a finite number of seconds above 0, got -1"
