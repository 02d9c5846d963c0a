from lmcache_core.health.ladder import Ladder

RUNGS = ("read_only", "local_cpu", "recompute")


def helps(*names: str):
    return lambda name: name in names


def choose(ladder: Ladder, now_s: float, *helping: str, rungs: tuple[str, ...] = RUNGS) -> str:
    return ladder.choose(rungs, helps=helps(*helping or RUNGS), lasting_s=30.0, now_s=now_s)


def test_the_first_rung_comes_first() -> None:
    assert choose(Ladder(), 0.0) == "read_only"


def test_a_rung_that_does_not_help_is_passed_over() -> None:
    assert choose(Ladder(), 0.0, "local_cpu") == "local_cpu"


def test_the_next_rung_takes_over_when_the_failure_lasts() -> None:
    ladder = Ladder()

    assert [choose(ladder, now_s) for now_s in (0.0, 29.9, 30.0, 59.9, 60.0, 1000.0)] == [
        "read_only",
        "read_only",
        "local_cpu",
        "local_cpu",
        "recompute",
        "recompute",
    ]


def test_the_next_rung_takes_over_at_once_when_this_one_helps_no_more() -> None:
    ladder = Ladder()
    choose(ladder, 0.0)

    assert choose(ladder, 1.0, "local_cpu") == "local_cpu"


def test_it_does_not_climb_down_when_an_earlier_rung_would_help_again() -> None:
    ladder = Ladder()
    choose(ladder, 0.0, "local_cpu")

    assert choose(ladder, 1.0) == "local_cpu"


def test_reset_begins_at_the_first_rung() -> None:
    ladder = Ladder()
    choose(ladder, 0.0)
    choose(ladder, 40.0)
    ladder.reset()

    assert choose(ladder, 41.0) == "read_only"


def test_where_none_helps_the_last_one_stays() -> None:
    assert choose(Ladder(), 0.0, "none") == "recompute"


def test_a_ladder_of_one_never_moves() -> None:
    ladder = Ladder()
    choose(ladder, 0.0, rungs=("local_cpu",))

    assert choose(ladder, 1e9, rungs=("local_cpu",)) == "local_cpu"
    assert ladder.next_move_s(("local_cpu",), 30.0) == float("inf")


def test_the_next_move_is_known() -> None:
    ladder = Ladder()
    before = ladder.next_move_s(RUNGS, 30.0)
    choose(ladder, 5.0)

    assert (before, ladder.next_move_s(RUNGS, 30.0)) == (float("inf"), 35.0)


def test_a_ladder_that_became_shorter_is_no_error() -> None:
    ladder = Ladder()
    choose(ladder, 0.0)
    choose(ladder, 30.0)
    choose(ladder, 60.0)

    assert choose(ladder, 61.0, rungs=("read_only", "local_cpu")) == "local_cpu"
