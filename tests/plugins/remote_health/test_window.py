from hypothesis import given
from hypothesis import strategies as st

from lmcache_plugins.remote_health.window import FailureWindow


def test_growth_is_of_the_window() -> None:
    window = FailureWindow(10.0, 0, 0.0)

    assert [window.growth(count, now_s) for count, now_s in ((3, 4.0), (5, 8.0), (5, 14.0), (6, 30.0))] == [3, 5, 2, 1]


def test_a_run_that_comes_a_little_early_does_not_stretch_the_window() -> None:
    window = FailureWindow(10.0, 0, 0.0)
    grown = [window.growth(9 * n, n * 9.99) for n in range(1, 6)]

    assert grown == [9, 9, 9, 9, 9]


def test_a_restart_forgets() -> None:
    window = FailureWindow(10.0, 0, 0.0)
    window.growth(7, 1.0)
    window.restart(7, 1.0)

    assert window.growth(8, 2.0) == 1


def test_its_memory_is_bounded() -> None:
    window = FailureWindow(10.0, 0, 0.0)
    for step in range(100_000):
        window.growth(step, step / 1000)

    assert len(window._samples) <= 102


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(0, 5)), max_size=60))
def test_growth_never_misses_a_failure_of_the_last_window(steps: list[tuple[float, int]]) -> None:
    window, now_s, count = FailureWindow(10.0, 0, 0.0), 0.0, 0
    history: list[tuple[float, int]] = []
    for step_s, failures in steps:
        now_s += step_s
        count += failures
        history.append((now_s, failures))
        grown = window.growth(count, now_s)
        certain = sum(n for at_s, n in history if at_s > now_s - 9.5)

        assert certain <= grown <= count
