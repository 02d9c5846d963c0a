import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.health.override import Override, make_override, read_override

GOOD = {
    "backend": "RemoteBackend",
    "owner": "alice",
    "reason": "kernel update",
    "reads": True,
    "writes": False,
    "drain": False,
    "created_unix_s": 1.0,
    "expires_unix_s": 61.0,
}

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.@+\-]{0,62}", fullmatch=True)
lines = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=500)
sides = st.sampled_from([(True, True), (True, False), (False, True)])
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda part: st.lists(part, max_size=3), max_leaves=5
)


orders = st.fixed_dictionaries(
    {
        "backend": names,
        "owner": names,
        "reason": lines,
        "drain": st.booleans(),
        "ttl_s": st.floats(1, 86400),
        "now_unix_s": st.floats(0, 4e9),
    }
)


@given(orders, sides)
def test_what_is_written_is_read_again(order: dict[str, object], side: tuple[bool, bool]) -> None:
    made = make_override(reads=side[0], writes=side[1], **order)  # type: ignore[arg-type]

    assert read_override(json.loads(json.dumps(made.as_json()))) == made


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), json_values, min_size=1))
def test_whatever_a_file_holds_is_an_override_or_a_value_error(changed: dict[str, object]) -> None:
    try:
        read = read_override({**GOOD, **changed})
    except ValueError:
        return

    assert read.created_unix_s <= read.expires_unix_s


@pytest.mark.parametrize("value", [None, [], "x", 7, {}])
def test_other_things_are_no_override(value: object) -> None:
    with pytest.raises(ValueError, match=r"is no override|missing"):
        read_override(value)


def test_the_owner_of_its_hold_is_the_operator() -> None:
    assert read_override(GOOD).hold_owner == "operator:alice"


@pytest.mark.parametrize(
    ("reads", "writes", "what"), [(True, True, "reads and writes"), (True, False, "reads"), (False, True, "writes")]
)
def test_it_says_what_it_leaves_out(reads: bool, writes: bool, what: str) -> None:
    assert read_override({**GOOD, "reads": reads, "writes": writes}).what == what


def test_nothing_is_left_once_it_is_over() -> None:
    override: Override = read_override(GOOD)

    assert (override.left_s(31.0), override.left_s(100.0)) == (30.0, 0.0)
