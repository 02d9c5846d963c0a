from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.plugins.vllm.conftest import BLOCK_TOKENS, Memory

from lmcache_plugins.vllm.loads import Ended
from lmcache_plugins.vllm.paged import PagedKV
from lmcache_plugins.vllm.records import LoadOrder, SaveOrder, StepPlan
from lmcache_plugins.vllm.tally import Tally
from lmcache_plugins.vllm.worker import WorkerSide


def load(*, blocks: tuple[int, ...] = (5, 6, 7, 8), first: int = 0, tokens: int = 16) -> StepPlan:
    order = LoadOrder(
        request_id="r", tokens=np.arange(tokens), block_ids=(blocks,), first_block=first, salt="s", variant="v"
    )
    return StepPlan(loads=(order,), idle=True)


def save() -> StepPlan:
    order = SaveOrder(request_id="r", tokens=np.arange(8), block_ids=((5, 6),), salt="s", variant="v")
    return StepPlan(saves=(order,))


def side(chunks: Any, tally: Tally, *, threaded: bool = False) -> WorkerSide:
    return WorkerSide(chunks, block_tokens=BLOCK_TOKENS, threaded=threaded, tally=tally, clock=lambda: 0.0)


def finish(worker: WorkerSide) -> Ended:
    """Wait for one load, as vLLM does: step by step."""
    ended = Ended(set(), set(), set())
    while not ended.done:
        ended = worker.take_ended(StepPlan(idle=True))
    return ended


def test_a_load_asks_for_its_tokens_and_blocks(tally: Tally) -> None:
    memory = Memory(16)
    side(memory, tally).start_loads(load(first=1))
    assert memory.asked == [(list(range(16)), PagedKV(((5, 6, 7, 8),), 1), "s", "v", "r", 4)]


def test_a_whole_load_leaves_no_bad_block(tally: Tally) -> None:
    worker = side(Memory(16), tally)
    worker.start_loads(load())
    assert worker.take_ended(StepPlan()) == ({"r"}, set(), set())


def test_a_short_load_reports_the_blocks_from_the_first_missing_on(tally: Tally) -> None:
    worker = side(Memory(8), tally)
    worker.start_loads(load())
    assert [worker.take_ended(StepPlan()) for _ in range(2)] == [({"r"}, {7, 8}, {"r"}), (set(), set(), set())]


def test_a_short_load_gives_up_what_was_promised(tally: Tally) -> None:
    short, whole = Memory(8), Memory(16)
    for memory in (short, whole):
        side(memory, tally).start_loads(load())
    assert (short.released, whole.released) == ([("s", "v", "r")], [])


def test_a_load_that_raises_gives_up_what_was_promised(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the memory is gone")

    memory = Memory(16)
    monkeypatch.setattr(memory, "retrieve", broken)
    worker = side(memory, tally)
    worker.start_loads(load())
    assert worker.take_ended(StepPlan()) == ({"r"}, {5, 6, 7, 8}, {"r"})
    assert memory.released == [("s", "v", "r")]


def test_blocks_that_vllm_computed_are_never_reported(tally: Tally) -> None:
    worker = side(Memory(0), tally)
    worker.start_loads(load(first=3))
    assert worker.take_ended(StepPlan())[1] == {8}


def test_an_order_without_tokens_reports_all_its_blocks(tally: Tally) -> None:
    worker = side(Memory(16), tally)
    worker.start_loads(load(tokens=0))
    assert worker.take_ended(StepPlan())[1] == {5, 6, 7, 8}


def test_without_a_cache_every_load_is_reported(tally: Tally) -> None:
    worker = side(None, tally, threaded=True)
    worker.start_loads(load())
    assert worker.take_ended(StepPlan()) == ({"r"}, {5, 6, 7, 8}, {"r"})


def test_a_cache_that_raises_is_a_load_that_failed(tally: Tally, caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    memory.retrieve = lambda *args, **kwargs: 1 / 0  # type: ignore[method-assign]
    worker = side(memory, tally)
    worker.start_loads(load())
    assert worker.take_ended(StepPlan())[1] == {5, 6, 7, 8}
    assert caplog.messages == ["lmcache-core: a load of 4 blocks failed; vllm computes them"]


def test_loads_are_counted(tally: Tally) -> None:
    worker = side(Memory(8), tally)
    worker.start_loads(load(first=1))
    assert tally.take() == {"load_seconds": 0.0, "loaded_tokens": 4, "failed_tokens": 8}


def test_a_load_beside_the_steps_is_reported_when_it_has_ended(tally: Tally) -> None:
    worker = side(Memory(8), tally, threaded=True)
    worker.start_loads(load())
    assert finish(worker) == ({"r"}, {7, 8}, {"r"})
    worker.close()


def test_a_step_does_not_wait_for_a_load_beside_it(tally: Tally) -> None:
    memory, go_on = Memory(16), threading.Event()
    answer = memory.retrieve

    def slow(*args: Any, **kwargs: Any) -> Any:
        go_on.wait()
        return answer(*args, **kwargs)

    memory.retrieve = slow  # type: ignore[method-assign]
    worker = side(memory, tally, threaded=True)
    worker.start_loads(load())
    assert worker.take_ended(StepPlan(idle=True)) == (set(), set(), set())
    go_on.set()
    assert finish(worker) == ({"r"}, set(), set())
    worker.close()


def test_a_save_hands_over_tokens_and_blocks(tally: Tally) -> None:
    memory = Memory()
    side(memory, tally).save(save())
    assert memory.stored == [(list(range(8)), PagedKV(((5, 6),), tokens=8), "s", "v", "r")]
    assert tally.take() == {"stored_tokens": 8, "store_seconds": 0.0}


def test_without_a_cache_nothing_is_kept(tally: Tally) -> None:
    side(None, tally).save(save())
    assert tally.take() == {}


def test_orders_that_were_never_taken_end_empty(tally: Tally) -> None:
    memory = Memory(16)
    worker = side(memory, tally, threaded=True)
    worker.refuse(load())
    assert worker.take_ended(StepPlan()) == ({"r"}, {5, 6, 7, 8}, {"r"})
    assert memory.released == [("s", "v", "r")]
    worker.close()


def test_an_order_that_was_taken_is_not_refused_as_well(tally: Tally) -> None:
    worker = side(Memory(16), tally)
    worker.start_loads(load())
    worker.refuse(load())
    assert worker.take_ended(StepPlan()) == ({"r"}, set(), set())


# -- windowed layers ---------------------------------------------------------


def windowed(chunks: Any, tally: Tally) -> WorkerSide:
    return WorkerSide(chunks, block_tokens=BLOCK_TOKENS, threaded=True, tally=tally, whole=True, clock=lambda: 0.0)


def test_a_short_load_of_a_windowed_model_fails_as_a_whole(tally: Tally) -> None:
    worker = windowed(Memory(8), tally)
    worker.start_loads(load(first=1))
    assert finish(worker) == ({"r"}, set(), {"r"})
    assert tally.take() == {"load_seconds": 0.0, "loaded_tokens": 0, "failed_tokens": 12}
    worker.close()


def test_a_complete_load_of_a_windowed_model_does_not_fail(tally: Tally) -> None:
    worker = windowed(Memory(16), tally)
    worker.start_loads(load())
    assert finish(worker) == ({"r"}, set(), set())
    worker.close()


def test_a_save_skips_what_its_layers_have_let_go_of(tally: Tally) -> None:
    memory = Memory()
    order = SaveOrder(request_id="r", tokens=np.arange(16), block_ids=((5, 6, 7, 8),), first_block=3)
    windowed(memory, tally).save(StepPlan(saves=(order,)))
    assert memory.skipped == [3 * BLOCK_TOKENS]
