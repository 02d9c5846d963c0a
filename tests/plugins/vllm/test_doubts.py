"""Steps whose blocks are filled within them: only after such a step it is known whether all ranks have their blocks."""

from __future__ import annotations

from tests.plugins.vllm.conftest import Scheduler, step

from lmcache_plugins.vllm.records import SaveOrder, Scheduled


def waiting(found: int = 8) -> Scheduler:
    """A scheduler with a request of 20 tokens, the first ones of which are to be loaded within the step."""
    scheduler = Scheduler(found, async_load=False)
    scheduler.match(20)
    scheduler.side.allocated("r", [range(5)], found)
    return scheduler


def saved(scheduler: Scheduler, scheduled: list[Scheduled]) -> list[tuple[str, int]]:
    """Requests and tokens that a step keeps; with it go the loads."""
    orders: tuple[SaveOrder, ...] = scheduler.side.saves(scheduled)
    scheduler.side.take_loads()
    return [(order.request_id, len(order.tokens)) for order in orders]


def test_a_step_that_waits_for_a_load_keeps_nothing_of_it() -> None:
    assert saved(waiting(), step(12, computed=8, blocks=range(5), replaces=True)) == []


def test_the_step_behind_it_does() -> None:
    scheduler = waiting()
    saved(scheduler, step(12, computed=8, blocks=range(5), replaces=True))
    assert saved(scheduler, step(1, computed=20)) == [("r", 16)]


def test_when_the_load_has_failed_only_what_is_computed_again_is_kept() -> None:
    scheduler = waiting()
    saved(scheduler, step(12, computed=8, blocks=range(5), replaces=True))
    assert saved(scheduler, step(12, computed=0)) == [("r", 8)]
    assert saved(scheduler, step(8, computed=12)) == [("r", 16)]


def test_others_in_the_step_keep_what_was_computed_before_it() -> None:
    scheduler = Scheduler(async_load=False)
    scheduler.match(20, request_id="other")
    saved(scheduler, [Scheduled("other", 0, 7, [[5, 6]], replaces=True)])
    assert saved(scheduler, [Scheduled("other", 7, 4, [[7]], replaces=False)]) == [("other", 8)]
    scheduler.answers.found = 8
    scheduler.match(20)
    scheduler.side.allocated("r", [range(5)], 8)
    other = Scheduled("other", 11, 9, [[8, 9]], replaces=False)
    assert saved(scheduler, [*step(12, computed=8, blocks=range(5), replaces=True), other]) == []
    assert saved(scheduler, [Scheduled("other", 20, 1, (), replaces=False)]) == [("other", 16)]


def test_a_request_that_is_doomed_is_a_load_as_well() -> None:
    scheduler = Scheduler(async_load=False)
    scheduler.match(20)
    scheduler.side.doom("gone", [[9]])
    assert saved(scheduler, step(20, blocks=range(5), replaces=True)) == []


def test_what_ends_with_the_step_is_counted_as_not_kept() -> None:
    scheduler = waiting()
    saved(scheduler, step(12, computed=8, blocks=range(5), replaces=True))
    scheduler.tally.take()
    scheduler.side.finished("r")
    assert scheduler.tally.take() == {"unkept_tokens": 8}


def test_what_the_next_step_has_kept_is_not() -> None:
    scheduler = waiting()
    saved(scheduler, step(12, computed=8, blocks=range(5), replaces=True))
    saved(scheduler, step(1, computed=20))
    scheduler.tally.take()
    scheduler.side.finished("r")
    assert scheduler.tally.take() == {}


def test_a_load_beside_the_steps_leaves_no_doubt() -> None:
    scheduler = Scheduler(found=8)
    scheduler.match(20)
    scheduler.side.allocated("r", [range(5)], 8)
    scheduler.match(20, request_id="other")
    other = Scheduled("other", 0, 20, [range(5, 10)], replaces=True)
    assert saved(scheduler, [other]) == [("other", 16)]
    scheduler.side.allocated("r", [range(5)], 0)  # as vLLM does when it takes the request up again
    assert saved(scheduler, step(12, computed=8, blocks=range(5), replaces=True)) == [("r", 16)]


def test_what_another_connector_loads_is_in_doubt() -> None:
    scheduler = Scheduler()
    scheduler.match(20, computed=4)
    scheduler.side.allocated("r", [range(5)], 0)
    assert saved(scheduler, step(8, computed=12, blocks=range(5), replaces=True)) == []
    assert saved(scheduler, step(1, computed=20)) == [("r", 16)]


def test_what_a_preempted_request_computes_again_is_not() -> None:
    scheduler = Scheduler()
    scheduler.match(20)
    assert saved(scheduler, step(12, blocks=range(3), replaces=True)) == [("r", 8)]
    scheduler.match(20, computed=8, preemptions=1)
    assert saved(scheduler, step(12, computed=8, blocks=range(5), replaces=True)) == [("r", 16)]
