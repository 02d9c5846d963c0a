from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.plugins.vllm.conftest import Scheduler, request, step


def test_what_is_found_is_matched() -> None:
    assert Scheduler(found=16).match(20) == (16, True)


def test_a_load_beside_the_steps_takes_the_whole_prompt() -> None:
    assert Scheduler(found=16).match(16) == (16, True)


def test_a_load_within_a_step_leaves_a_block_to_compute() -> None:
    assert Scheduler(found=16, async_load=False).match(16) == (12, False)


def test_a_rest_that_is_kept_is_matched_to_its_last_token() -> None:
    scheduler = Scheduler(found=18)
    scheduler.answers.save_unfull_chunk = True
    assert scheduler.match(18, computed=8) == (10, True)


def test_a_load_within_a_step_takes_no_part_of_a_block() -> None:
    scheduler = Scheduler(found=18, async_load=False)
    scheduler.answers.save_unfull_chunk = True
    assert scheduler.match(18) == (16, False)


def test_a_load_of_a_whole_prompt_has_all_its_tokens_and_blocks() -> None:
    scheduler = Scheduler(found=18)
    scheduler.answers.save_unfull_chunk = True
    scheduler.match(18, computed=8)
    scheduler.side.allocated("r", [[5, 6, 7, 8, 9, 10]], 10)
    (order,) = scheduler.side.take_loads()
    assert (order.tokens.tolist(), order.block_ids, order.first_block) == (list(range(18)), ((5, 6, 7, 8, 9),), 2)


def test_what_vllm_has_computed_is_not_matched_again() -> None:
    assert Scheduler(found=16).match(20, computed=12) == (4, True)


def test_a_prefix_that_vllm_has_is_no_match() -> None:
    scheduler = Scheduler(found=16)
    assert scheduler.match(20, computed=16) == (0, False)


def test_no_match_gives_up_what_was_promised() -> None:
    scheduler = Scheduler(found=8)
    scheduler.match(20, computed=12)
    assert scheduler.answers.pending[0].cancelled


def test_a_prompt_of_less_than_a_block_is_not_looked_up() -> None:
    scheduler = Scheduler(found=16)
    assert scheduler.match(4) == (0, False)
    assert scheduler.answers.asked == []


def test_a_lookup_carries_salt_variant_and_request() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(9, salt="tenant", variant="lora a")
    assert scheduler.answers.asked == [([0, 1, 2, 3, 4, 5, 6, 7, 8], "tenant", "lora a", "r")]


def test_loads_beside_the_steps_can_be_switched_off() -> None:
    assert Scheduler(found=16, async_load=False).match(20) == (16, False)


def test_a_lookup_under_way_is_asked_for_again() -> None:
    scheduler = Scheduler(found=None)
    assert scheduler.match(20) == (None, False)
    scheduler.answers.pending[0].tokens = 16
    assert scheduler.match(20) == (16, True)
    assert len(scheduler.answers.asked) == 1


def test_a_match_that_finds_no_blocks_is_kept_for_the_next_try() -> None:
    scheduler = Scheduler(found=16)
    assert [scheduler.match(20) for _ in range(3)] == [(16, True)] * 3
    assert len(scheduler.answers.asked) == 1


def test_a_miss_is_kept_for_a_second() -> None:
    scheduler = Scheduler(found=0)
    scheduler.match(20)
    scheduler.clock.now_s += 0.9
    scheduler.match(20)
    assert len(scheduler.answers.asked) == 1
    scheduler.clock.now_s += 0.2
    scheduler.match(20)
    assert len(scheduler.answers.asked) == 2


def test_a_consumer_of_nothing_looks_nothing_up() -> None:
    scheduler = Scheduler(found=16, loads=False)
    assert scheduler.match(20) == (0, False)
    assert scheduler.answers.asked == []


def test_a_request_that_wants_every_token_computed_is_not_looked_up() -> None:
    scheduler = Scheduler(found=16)
    assert scheduler.match(20, reads=False) == (0, False)
    assert scheduler.answers.asked == []


@pytest.mark.parametrize("reason", ["multimodal input", "prompt embeddings"])
def test_a_refused_request_is_neither_looked_up_nor_kept(reason: str, caplog: Any) -> None:
    scheduler = Scheduler(found=16)
    with caplog.at_level(logging.WARNING):
        assert scheduler.match(20, refusal=reason) == (0, False)
    assert scheduler.side.saves(step(20, blocks=range(5), replaces=True)) == ()
    assert (scheduler.answers.asked, scheduler.tally.take()) == ([], {f"refused_requests:{reason}": 1})
    (message,) = caplog.messages
    assert message == (
        f"lmcache-core leaves requests with {reason} to vllm, as their tokens do not name their kv; "
        "further ones are only counted in lmcache:connector_refused_requests"
    )


def test_a_refused_request_is_counted_once_and_told_once_a_reason(caplog: Any) -> None:
    scheduler = Scheduler()
    scheduler.match(20, refusal="multimodal input")
    scheduler.match(20, refusal="multimodal input")
    scheduler.match(20, refusal="multimodal input", request_id="other")
    assert scheduler.tally.take() == {"refused_requests:multimodal input": 2}
    assert len(caplog.messages) == 1


# -- loads -------------------------------------------------------------------


def test_a_load_names_whole_chunks_and_the_blocks_to_fill() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(16, computed=4, salt="s", variant="v")
    scheduler.side.allocated("r", [[9, 8, 7, 6]], 8)
    (order,) = scheduler.side.take_loads()
    assert (list(order.tokens), order.block_ids, order.first_block) == (list(range(16)), ((9, 8, 7),), 1)
    assert (order.request_id, order.salt, order.variant) == ("r", "s", "v")


def test_a_load_is_ordered_once() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    scheduler.side.allocated("r", [[9, 8, 7, 6, 5]], 16)
    scheduler.side.allocated("r", [[9, 8, 7, 6, 5]], 0)  # vLLM's second call, when the load is over
    assert [len(scheduler.side.take_loads()) for _ in range(2)] == [1, 0]


def test_what_a_load_needs_is_not_given_up() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    scheduler.side.allocated("r", [[9, 8, 7, 6, 5]], 16)
    scheduler.side.finished("r")
    assert not scheduler.answers.pending[0].cancelled


def test_tokens_that_vllm_does_not_take_are_given_up() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    scheduler.side.allocated("r", [[9, 8, 7, 6, 5]], 0)
    assert scheduler.answers.pending[0].cancelled
    assert scheduler.side.take_loads() == ()


def test_a_request_that_ends_before_it_is_loaded_gives_up_its_promise() -> None:
    scheduler = Scheduler(found=None)
    scheduler.match(20)
    scheduler.side.finished("r")
    assert (scheduler.answers.pending[0].cancelled, scheduler.side.requests) == (True, 0)


def test_requests_that_vllm_has_forgotten_are_forgotten() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    scheduler.side.forget({"r", "stranger"})
    assert (scheduler.answers.pending[0].cancelled, scheduler.side.requests) == (True, 0)


def test_a_request_is_loaded_once_an_admission() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    scheduler.side.allocated("r", [range(5)], 16)
    assert scheduler.match(20) == (0, False)  # the load failed from the first block on
    assert len(scheduler.answers.asked) == 1


def test_a_preempted_request_is_looked_up_and_loaded_again() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    scheduler.side.allocated("r", [range(5)], 16)
    assert scheduler.match(24, preemptions=1) == (16, True)
    assert len(scheduler.answers.asked[1][0]) == 24


def test_blocks_of_a_request_that_nobody_knows_are_reported_as_empty() -> None:
    scheduler = Scheduler()
    assert not scheduler.side.allocated("stranger", [[3, 4]], 8)
    scheduler.side.doom("stranger", [[3, 4]])
    (order,) = scheduler.side.take_loads()
    assert (order.request_id, list(order.tokens), order.block_ids, order.first_block) == ("stranger", [], ([3, 4],), 0)


def test_hits_are_counted_when_they_are_taken() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20)
    assert scheduler.tally.take() == {"requested_tokens": 20}
    scheduler.side.allocated("r", [range(5)], 16)
    assert scheduler.tally.take() == {"hit_tokens": 16}


# -- saves -------------------------------------------------------------------


def test_chunks_are_kept_as_chunked_prefill_fills_them() -> None:
    scheduler = Scheduler()
    scheduler.match(20)
    first = scheduler.side.saves(step(7, blocks=[5, 6], replaces=True))
    second = scheduler.side.saves(step(7, computed=7, blocks=[7, 9]))
    third = scheduler.side.saves(step(6, computed=14, blocks=[2]))
    assert first == ()
    assert [(list(order.tokens), order.block_ids) for order in second] == [(list(range(8)), ((5, 6),))]
    assert [(list(order.tokens), order.block_ids) for order in third] == [(list(range(16)), ((5, 6, 7, 9),))]


def test_a_save_carries_salt_and_variant() -> None:
    scheduler = Scheduler()
    scheduler.match(20, salt="tenant", variant="lora a")
    (order,) = scheduler.side.saves(step(20, blocks=range(5), replaces=True))
    assert (order.request_id, order.salt, order.variant) == ("r", "tenant", "lora a")


def test_salts_are_never_shown() -> None:
    scheduler = Scheduler(found=16)
    scheduler.match(20, salt="secret")
    scheduler.side.allocated("r", [range(5)], 16)
    orders = [*scheduler.side.take_loads(), *scheduler.side.saves(step(20, blocks=range(5), replaces=True))]
    assert len(orders) == 2
    assert "secret" not in repr([*orders, request(salt="secret")])


def test_generated_tokens_are_not_kept_by_default() -> None:
    scheduler = Scheduler()
    view = request(7)
    scheduler.side.match(view, 0)
    scheduler.side.saves(step(7, blocks=[1, 2], replaces=True))
    view.tokens.append(7)  # type: ignore[attr-defined]
    assert scheduler.side.saves(step(1, computed=7)) == ()


def test_generated_tokens_are_kept_where_that_is_wanted() -> None:
    scheduler = Scheduler(save_generated=True)
    view = request(7)
    scheduler.side.match(view, 0)
    scheduler.side.saves(step(7, blocks=[1, 2], replaces=True))
    view.tokens.append(7)  # type: ignore[attr-defined]
    (order,) = scheduler.side.saves(step(1, computed=7))
    assert (list(order.tokens), order.block_ids) == (list(range(8)), ((1, 2),))


def test_tokens_that_are_scheduled_but_not_known_yet_are_not_kept() -> None:
    scheduler = Scheduler(save_generated=True)
    scheduler.match(7)
    assert scheduler.side.saves(step(9, blocks=[1, 2], replaces=True)) == ()


def test_what_was_planned_before_a_preemption_is_planned_again() -> None:
    scheduler = Scheduler()
    scheduler.match(20)
    assert len(scheduler.side.saves(step(16, blocks=[1, 2, 3, 4], replaces=True))) == 1
    assert scheduler.side.saves(step(4, computed=16, blocks=[5])) == ()
    (order,) = scheduler.side.saves(step(20, computed=0, blocks=[9, 8, 7, 6, 5], replaces=True))
    assert order.block_ids == ((9, 8, 7, 6),)


def test_a_producer_of_nothing_keeps_nothing() -> None:
    scheduler = Scheduler(saves=False)
    scheduler.match(20)
    assert scheduler.side.saves(step(20, blocks=range(5), replaces=True)) == ()


def test_nothing_is_kept_while_the_chunk_size_is_not_known() -> None:
    scheduler = Scheduler()
    scheduler.answers.chunk_tokens = 0
    scheduler.match(20)
    assert scheduler.side.saves(step(20, blocks=range(5), replaces=True)) == ()
    scheduler.answers.chunk_tokens = 8
    assert len(scheduler.side.saves(step(1, computed=20))) == 1


def test_the_rest_of_a_prompt_is_kept_with_the_step_that_ends_it() -> None:
    scheduler = Scheduler()
    scheduler.answers.save_unfull_chunk = True
    scheduler.match(18)
    assert [len(order.tokens) for order in scheduler.side.saves(step(12, blocks=(1, 2, 3)))] == [8]
    (order,) = scheduler.side.saves(step(6, computed=12, blocks=(4, 5, 6)))
    assert (order.tokens.tolist(), order.block_ids) == (list(range(18)), ((1, 2, 3, 4, 5),))


def test_the_rest_of_a_prompt_is_kept_once() -> None:
    scheduler = Scheduler()
    scheduler.answers.save_unfull_chunk = True
    scheduler.match(18)
    scheduler.side.saves(step(18, blocks=(1, 2, 3, 4, 5)))
    assert scheduler.side.saves(step(1, computed=18)) == ()


def test_generated_tokens_are_kept_in_full_chunks_alone() -> None:
    scheduler = Scheduler(save_generated=True)
    scheduler.answers.save_unfull_chunk = True
    scheduler.match(18)
    scheduler.side.saves(step(18, blocks=(1, 2, 3, 4, 5)))
    scheduler.match(26, prompt_tokens=18)
    assert scheduler.side.saves(step(1, computed=18)) == ()
    assert [len(order.tokens) for order in scheduler.side.saves(step(8, computed=18, blocks=(6, 7)))] == [24]


@pytest.mark.parametrize(("tokens", "computed"), [(17, 16), (18, 16), (20, 16), (3, 0), (1, 0)])
def test_what_vllm_computes_in_one_step_anyway_is_not_looked_up(tokens: int, computed: int) -> None:
    scheduler = Scheduler(found=tokens)
    scheduler.answers.save_unfull_chunk = True
    assert scheduler.match(tokens, computed=computed) == (0, False)
    assert scheduler.answers.asked == []


def test_a_rest_of_one_token_is_not_kept() -> None:
    scheduler = Scheduler()
    scheduler.answers.save_unfull_chunk = True
    scheduler.match(17)
    assert [len(order.tokens) for order in scheduler.side.saves(step(17, blocks=(1, 2, 3, 4, 5)))] == [16]
