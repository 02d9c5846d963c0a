import pytest
from tests.core.health.tower import SteeredCheck
from tests.memory_store import Options

from lmcache_core import CacheView, HealthCheck
from lmcache_core.health.terms import CheckTerms, TermReader

READER = TermReader(Options(ping_interval=7.0, ping_timeout=2.0))


def test_terms_default_to_the_configuration() -> None:
    assert READER.read(SteeredCheck()) == CheckTerms(
        interval_s=7.0, timeout_s=6.0, ladder=("recompute",), fast_interval_s=1.4, ladder_s=30.0
    )


def test_terms_of_the_check_win() -> None:
    check = SteeredCheck(
        interval=1,
        timeout=0.5,
        rise=2,
        fall=3,
        policy=["read_only", "local_cpu"],
        backend="RemoteBackend",
        fast_interval=0.25,
        jitter=0.5,
        initial_delay=4,
        policy_ladder_secs=9,
        enforce=False,
        group="network",
        depends_on=["link"],
    )

    assert READER.read(check) == CheckTerms(
        interval_s=1.0,
        timeout_s=0.5,
        rise=2,
        fall=3,
        ladder=("read_only", "local_cpu"),
        backend="RemoteBackend",
        fast_interval_s=0.25,
        jitter=0.5,
        initial_delay_s=4.0,
        ladder_s=9.0,
        enforce=False,
        group="network",
        depends_on=("link",),
    )


def test_the_configuration_wins_over_the_check() -> None:
    reader = TermReader(Options(), {"interval": 2.0, "enforce": False, "fallback_policy": ("bypass",)})
    terms = reader.read(SteeredCheck(interval=1.0, policy="local_cpu"))

    assert (terms.interval_s, terms.enforce, terms.ladder) == (2.0, False, ("bypass",))


def test_the_fast_interval_is_never_longer_than_the_interval() -> None:
    assert READER.read(SteeredCheck(interval=1.0, fast_interval=5.0)).fast_interval_s == 1.0


class OldCheck(HealthCheck):
    """Written before there was more than a name and a run."""

    def name(self) -> str:
        return "old"

    def check(self) -> bool:
        return True

    @classmethod
    def create(cls, manager: CacheView) -> list[HealthCheck]:
        return [cls()]


def test_a_check_that_says_nothing_has_the_defaults() -> None:
    assert READER.read(OldCheck()) == CheckTerms(
        interval_s=7.0, timeout_s=6.0, ladder=("recompute",), fast_interval_s=1.4, jitter=0.1
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
        ({"policy": None}, "fallback_policy must be a policy's name or a list of names, got None"),
        ({"policy": []}, "fallback_policy must be a policy's name or a list of names, got []"),
        ({"policy": ["a", 1]}, "fallback_policy must be a policy's name or a list of names, got ['a', 1]"),
        ({"fast_interval": 0}, "fast_interval must be a finite number of seconds above 0, got 0"),
        ({"jitter": 1}, "jitter must be a number from 0 to below 1, got 1"),
        ({"initial_delay": -1}, "initial_delay must be a finite number of seconds of at least 0, got -1"),
        ({"policy_ladder_secs": 0}, "policy_ladder_secs must be a finite number of seconds above 0, got 0"),
        ({"enforce": 1}, "enforce must be True or False, got 1"),
        ({"group": None}, "group must be text, got None"),
        ({"depends_on": "a"}, "depends_on must be a list of names, got 'a'"),
        ({"backend": 3}, "get_bypass_backend_name must give a name or None, got 3"),
    ],
)
def test_a_term_that_cannot_be_used_is_refused(terms: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        READER.read(SteeredCheck(**terms))

    assert str(caught.value) == sentence
