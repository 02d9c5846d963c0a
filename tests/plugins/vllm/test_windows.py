"""The scheduler's side for models some of whose layers see the last tokens only."""

from __future__ import annotations

import pytest
from tests.plugins.vllm.conftest import Scheduler, step

from lmcache_plugins.vllm.records import Scheduled


def test_of_a_windowed_model_the_last_token_is_not_loaded() -> None:
    scheduler = Scheduler(found=16, windows=(0, 6), blocks=100)
    assert scheduler.match(16) == (15, True)
    scheduler.side.allocated("r", [[9, 8, 7, 6], [0, 0, 5, 4]], 15)
    (order,) = scheduler.side.take_loads()
    assert (len(order.tokens), order.block_ids, order.blocks) == (16, ((9, 8, 7, 6), (0, 0, 5, 4)), 4)


def test_a_rest_of_a_windowed_model_is_loaded_but_for_its_last_token() -> None:
    scheduler = Scheduler(found=18, windows=(0, 6))
    scheduler.answers.save_unfull_chunk = True
    assert scheduler.match(18) == (17, True)


def test_blocks_of_each_group_are_kept_apart() -> None:
    scheduler = Scheduler(windows=(0, 100))
    scheduler.match(20)
    scheduler.side.saves([Scheduled("r", 0, 7, ([5, 6], [15, 16]), replaces=True)])
    (order,) = scheduler.side.saves([Scheduled("r", 7, 7, ([7, 9], [17, 19]), replaces=False)])
    assert (order.block_ids, order.first_block) == (((5, 6), (15, 16)), 0)


@pytest.mark.parametrize(("window", "first_block"), [(6, 2), (9, 2), (10, 1), (13, 1), (14, 0)])
def test_a_save_skips_what_is_before_the_window_of_its_step(window: int, first_block: int) -> None:
    """In blocks of 4, with 16 tokens computed: the next token sees those from `17 - window` on."""
    scheduler = Scheduler(windows=(0, window))
    scheduler.match(24)
    scheduler.side.saves(step(16, blocks=range(1, 5), replaces=True, groups=2))
    (order,) = scheduler.side.saves(step(8, computed=16, blocks=range(5, 7), groups=2))
    assert order.first_block == first_block


def test_a_chunk_that_a_window_has_left_in_part_is_counted_and_not_kept() -> None:
    scheduler = Scheduler(windows=(0, 3))
    scheduler.match(24)
    assert len(scheduler.side.saves(step(14, blocks=range(1, 5), replaces=True, groups=2))) == 1
    scheduler.tally.take()
    assert scheduler.side.saves(step(4, computed=14, blocks=[5], groups=2)) == ()
    assert scheduler.tally.take() == {"unkept_tokens": 8}


@pytest.mark.parametrize(("found", "unkept"), [(16, None), (8, 8)])
def test_what_vllm_has_and_the_cache_has_not_is_counted(found: int, unkept: int | None) -> None:
    scheduler = Scheduler(found=found, windows=(0, 3), blocks=100)
    scheduler.match(24, computed=16)
    (order,) = scheduler.side.saves(step(8, computed=16, blocks=range(1, 7), replaces=True, groups=2))
    assert (order.first_block, scheduler.tally.take().get("unkept_tokens")) == (3, unkept)


def test_of_what_was_not_looked_up_nothing_is_counted() -> None:
    scheduler = Scheduler(windows=(0, 3), blocks=100)
    assert scheduler.match(24, computed=20) == (0, False)
    scheduler.side.saves(step(4, computed=20, blocks=range(1, 7), replaces=True, groups=2))
    assert scheduler.tally.take() == {}


def test_a_load_waits_while_others_may_need_the_room() -> None:
    """In two groups of blocks of 4, a request of 16 tokens may need 12 blocks."""
    scheduler = Scheduler(found=16, windows=(0, 6), blocks=24)
    scheduler.match(16, request_id="a")
    scheduler.side.allocated("a", [[9, 8, 7, 6], [0, 0, 5, 4]], 15)
    assert scheduler.match(16, request_id="b") == (None, False)
    scheduler.side.saves([Scheduled("a", 15, 1, ([9, 8, 7, 6], [0, 0, 5, 4]), replaces=True)])
    assert scheduler.match(16, request_id="b") == (15, True)


@pytest.mark.parametrize("blocks", [25, 1])
def test_a_load_begins_where_there_is_room_or_none_other(blocks: int) -> None:
    scheduler = Scheduler(found=16, windows=(0, 6), blocks=blocks)
    assert scheduler.match(16, request_id="a") == (15, True)
    scheduler.side.allocated("a", [[9, 8, 7, 6], [0, 0, 5, 4]], 15)
    assert scheduler.match(16, request_id="b") == ((15, True) if blocks == 25 else (None, False))


def test_a_request_that_is_gone_needs_no_room() -> None:
    scheduler = Scheduler(found=16, windows=(0, 6), blocks=10)
    for end in (lambda: scheduler.side.finished("a"), lambda: scheduler.side.forget(["a"])):
        scheduler.match(16, request_id="a")
        scheduler.side.allocated("a", [[9, 8, 7, 6], [0, 0, 5, 4]], 15)
        end()
    assert scheduler.match(16, request_id="b") == (15, True)


def test_a_load_that_could_not_be_ordered_needs_room_too() -> None:
    scheduler = Scheduler(found=16, windows=(0, 6), blocks=10)
    scheduler.side.doom("stranger", [[9, 8, 7, 6], [0, 0, 5, 4]])
    assert scheduler.match(16, request_id="b") == (None, False)


def test_full_attention_needs_no_such_room() -> None:
    scheduler = Scheduler(found=16, blocks=2)
    scheduler.match(16, request_id="a")
    scheduler.side.allocated("a", [[9, 8, 7, 6]], 16)
    assert scheduler.match(16, request_id="b") == (16, True)
