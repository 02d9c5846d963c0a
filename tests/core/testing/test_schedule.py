import threading

import pytest

from lmcache_core.testing import Clear, Schedule, flapping


def test_steps_come_in_order_and_replace_each_other() -> None:
    put: list[tuple[str, ...]] = []
    schedule = Schedule([(0.0, "a"), (0.01, ("a", "b")), (0.02, Clear())], put.append)
    schedule.start()

    assert schedule.wait(10.0)
    assert put == [tuple("a"), ("a", "b"), ()]


def test_stopping_ends_an_endless_schedule() -> None:
    began = threading.Event()
    schedule = Schedule(flapping("a", up_s=0.0, down_s=0.001), lambda _: began.set())
    schedule.start()
    began.wait(10.0)
    schedule.stop()

    assert schedule.wait(0.0)


def test_stopping_wakes_a_step_that_waits() -> None:
    put: list[tuple[str, ...]] = []
    schedule = Schedule([(3600.0, "a")], put.append)
    schedule.start()
    schedule.stop()

    assert schedule.wait(0.0)
    assert put == []


def test_flapping_is_up_first() -> None:
    assert list(flapping("a", up_s=5.0, down_s=1.0, cycles=2)) == [
        (5.0, ("a",)),
        (6.0, Clear()),
        (11.0, ("a",)),
        (12.0, Clear()),
    ]


def test_jitter_follows_from_the_seed() -> None:
    def times(seed: int) -> list[float]:
        return [at_s for at_s, _ in flapping("a", up_s=1.0, down_s=1.0, cycles=5, jitter_s=0.5, seed=seed)]

    assert times(7) == times(7) != times(8)


def test_flapping_takes_time() -> None:
    with pytest.raises(ValueError) as caught:
        flapping("a", up_s=0.0, down_s=0.0)

    assert str(caught.value) == "up_s and down_s must be at least 0 and one of them above, got 0.0 and 0.0"
