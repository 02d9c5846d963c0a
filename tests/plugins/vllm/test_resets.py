"""After a reset, as after a change of weights, nothing is found that was kept before it, wherever it is."""

from __future__ import annotations

import pytest
from tests.plugins.vllm.conftest import Scheduler, step

from lmcache_core import Cleared


def cleared(scheduler: Scheduler, *chunks: int) -> None:
    """Have the next clear say that so many chunks are gone from each tier."""
    answer = [Cleared(backend=f"tier {at}", chunks=one) for at, one in enumerate(chunks)]
    scheduler.answers.clear = lambda: answer  # type: ignore[method-assign]


def variants(scheduler: Scheduler) -> list[str]:
    return [variant for _, _, variant, _ in scheduler.answers.asked]


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [((3, -1, -1), "tier 1, tier 2 kept"), ((), "the cache kept, which did not answer,")],
)
def test_a_reset_holds_wherever_chunks_stay_and_says_so(
    chunks: tuple[int, ...], kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Scheduler()
    cleared(scheduler, *chunks)
    assert scheduler.side.reset() is True
    assert caplog.messages == [
        f"lmcache-core: vllm reset its caches; what {kept} before that stays there, and this engine never finds it"
    ]


def test_a_reset_that_empties_every_tier_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    cleared(scheduler, 3, 0)
    assert scheduler.side.reset() is True
    assert caplog.messages == []


def test_requests_after_it_have_other_keys() -> None:
    scheduler = Scheduler(found=8)
    scheduler.match(20, variant="lora a")
    for request_id in ("s", "t"):
        scheduler.side.reset()
        scheduler.match(20, request_id=request_id, variant="lora a")
    first, second, third = variants(scheduler)
    assert first == "lora a"
    assert second.startswith("lora a since ")
    assert third.startswith("lora a since ")
    assert second != third


def test_loads_and_saves_after_it_have_the_same_key_as_its_lookups() -> None:
    scheduler = Scheduler(found=8)
    scheduler.side.reset()
    scheduler.match(20)
    scheduler.side.allocated("r", [range(5)], 8)
    (load,) = scheduler.side.take_loads()
    (save,) = scheduler.side.saves(step(12, computed=8, blocks=range(5), replaces=True))
    assert [load.variant, save.variant] == variants(scheduler) * 2


def test_a_request_that_waits_is_looked_up_again() -> None:
    scheduler = Scheduler(found=8)
    scheduler.match(20)
    scheduler.side.reset()
    scheduler.match(20)
    assert len(set(variants(scheduler))) == 2
    assert [one.cancelled for one in scheduler.answers.pending] == [True, False]


def test_a_request_under_way_is_kept_no_further() -> None:
    scheduler = Scheduler()
    scheduler.match(20)
    assert len(scheduler.side.saves(step(10, blocks=range(3), replaces=True))) == 1
    scheduler.side.reset()
    assert scheduler.side.saves(step(10, computed=10, blocks=range(3, 5))) == ()


def test_one_that_is_computed_again_from_the_start_is() -> None:
    scheduler = Scheduler()
    scheduler.match(20)
    scheduler.side.saves(step(10, blocks=range(3), replaces=True))
    scheduler.side.reset()
    scheduler.match(20, preemptions=1)
    (order,) = scheduler.side.saves(step(20, blocks=range(5), replaces=True))
    assert len(order.tokens) == 16
