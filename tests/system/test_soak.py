"""Mixed traffic with deaths, freezes and evictions: no wrong byte, nothing left behind, no growth.

Half a minute of it runs with all tests; ``make soak`` runs ten, three with restarts, and rounds with a rest after each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.soak.ledger import EXACT
from tests.soak.rest import Rounds, judge, rest_and_compare
from tests.soak.run import Plan, soak

_KIB = 1 << 10
_KEEP = """
from tests.soak.ledger import in_use_bytes
before = in_use_bytes()
kept = [bytes(100) for _ in range(10_000)]
print(in_use_bytes() - before)
kept.clear()
print(in_use_bytes() - before)
"""


@pytest.fixture
def tell(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print past pytest's capture: ten silent minutes look like a hang."""

    def say(line: str) -> None:
        with capfd.disabled():
            print(line, flush=True)

    return say


@pytest.mark.timeout(240)
def test_half_a_minute_of_mixed_traffic() -> None:
    # So short a run is still warming up: growth is judged by the long one.
    report = soak(Plan(seconds=30, seed=20_261_130, warm_up_s=15, most_growth=0.1, tell=lambda line: None))

    assert report.problems == [], "\n".join(report.lines())


@pytest.mark.timeout(180)
def test_a_server_that_is_killed_and_ended_again_and_again() -> None:
    report = soak(Plan(seconds=25, seed=7, workers=4, restarts=True, tell=lambda line: None))

    assert report.problems == [], "\n".join(report.lines())
    assert report.chaos["server kills"]
    assert report.chaos["server ends"]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ten_minutes_of_mixed_traffic(tell: Callable[[str], None]) -> None:
    report = soak(Plan(seconds=600, seed=20_261_201, tell=tell))

    tell("\n".join(report.lines()))
    assert report.problems == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_three_minutes_with_a_server_that_restarts(tell: Callable[[str], None]) -> None:
    report = soak(Plan(seconds=180, seed=20_261_202, restarts=True, tell=tell))

    tell("\n".join(report.lines()))
    assert report.problems == []


def test_the_ledger_counts_what_is_kept_and_no_more_once_it_is_freed() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _KEEP], env=os.environ | EXACT, capture_output=True, text=True, timeout=60, check=True
    )
    kept, freed = map(int, ran.stdout.split())

    assert 10_000 * 133 < kept < 10_000 * 200  # 100 bytes and a header of 33 each, rounded up; and the list
    assert abs(freed) < 16 * _KIB


def test_memory_that_grew_between_rests_is_told() -> None:
    rests = [90 * _KIB, 100 * _KIB, 120 * _KIB, 151 * _KIB]

    assert judge(rests, warm_up=2, most_growth_bytes=50 * _KIB) == [
        "at rest the server had allocated 100 KiB after 2 rounds, and after 4 it is 151 KiB: it may grow by 50"
    ]


def test_memory_that_grew_before_the_end_of_the_warm_up_is_not() -> None:
    rests = [10 * _KIB, 100 * _KIB, 120 * _KIB, 150 * _KIB]

    assert judge(rests, warm_up=2, most_growth_bytes=50 * _KIB) == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_a_server_has_allocated_at_rest_after_each_of_many_rounds(tell: Callable[[str], None]) -> None:
    rests = rest_and_compare(Rounds(seed=20_261_203, tell=tell))

    assert rests.problems == []
