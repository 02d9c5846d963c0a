"""The numbers that operators are promised, against a real server that is frozen, not killed."""

from __future__ import annotations

import pytest
from tests.outage import DEADLINE_S, Hang, measure_hang, measure_outage
from tests.redis_server import RedisServer

SLACK_S = 0.15
"""For a busy machine: what a thread may wait for its turn."""


@pytest.fixture(scope="module")
def hang() -> Hang:
    with RedisServer() as server:
        return measure_hang(server)


def test_hung_store_is_left_out_after_one_deadline_whatever_the_interval_is(hang: Hang) -> None:
    assert hang.bypass_s <= DEADLINE_S + SLACK_S


def test_hung_store_costs_one_request_one_deadline(hang: Hang) -> None:
    assert hang.first_call_s <= DEADLINE_S + SLACK_S


def test_hung_store_costs_later_requests_nothing(hang: Hang) -> None:
    assert hang.later_calls_s < DEADLINE_S / 10


def test_policy_answers_one_ping_timeout_later(hang: Hang) -> None:
    assert hang.gate_s <= DEADLINE_S + 0.2 + 3 * SLACK_S


def test_outage_costs_its_length_the_waiting_time_and_one_interval_at_most(redis_server: RedisServer) -> None:
    outage = measure_outage(redis_server, outage_s=5.0)

    assert outage.lost_s <= outage.bound_s
