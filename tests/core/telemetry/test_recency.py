from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.telemetry.recency import RecencyStack


@given(st.lists(st.tuples(st.sampled_from(["use", "use", "drop"]), st.integers(0, 40)), max_size=400))
def test_it_agrees_with_a_list(steps: list[tuple[str, int]]) -> None:
    stack, model = RecencyStack(), []
    for step, slot in steps:
        if slot in model:
            model.remove(slot)
        if step == "use":
            stack.use(slot)
            model.append(slot)
        else:
            stack.drop(slot)
    assert len(stack) == len(model)
    assert stack.oldest() == (model[0] if model else None)
    assert [stack.used_since(slot) for slot in reversed(model)] == list(range(len(model)))


def test_it_goes_on_when_its_line_is_full() -> None:
    stack = RecencyStack()
    for number in range(10_000):
        stack.use(number % 700)

    assert stack.oldest() == 10_000 % 700
    assert stack.used_since(9_999 % 700) == 0
    assert stack.used_since(10_000 % 700) == 699
