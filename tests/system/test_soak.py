"""Mixed traffic with deaths, freezes and evictions: no wrong byte, nothing left behind, no growth.

One minute of it runs with all tests; ``make soak`` runs ten.
"""

from __future__ import annotations

import sys

import pytest
from tests.soak.run import Plan, soak


def tell(line: str) -> None:
    print(line, file=sys.__stderr__, flush=True)  # past pytest's capture: ten silent minutes look like a hang


@pytest.mark.timeout(240)
def test_a_minute_of_mixed_traffic() -> None:
    # So short a run is still warming up: growth is judged by the long one.
    report = soak(Plan(seconds=60, seed=20_261_130, warm_up_s=30, most_growth=0.1, tell=lambda line: None))

    assert report.problems == [], "\n".join(report.lines())


@pytest.mark.timeout(180)
def test_a_server_that_is_killed_and_ended_again_and_again() -> None:
    report = soak(Plan(seconds=25, seed=7, workers=4, restarts=True, tell=lambda line: None))

    assert report.problems == [], "\n".join(report.lines())
    assert report.chaos["server kills"]
    assert report.chaos["server ends"]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ten_minutes_of_mixed_traffic() -> None:
    report = soak(Plan(seconds=600, seed=20_261_201, tell=tell))

    tell("\n".join(report.lines()))
    assert report.problems == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_three_minutes_with_a_server_that_restarts() -> None:
    report = soak(Plan(seconds=180, seed=20_261_202, restarts=True, tell=tell))

    tell("\n".join(report.lines()))
    assert report.problems == []
