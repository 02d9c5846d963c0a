from lmcache_core.cli.plot import bar, plot_lines


def test_a_curve_falls_from_left_to_right() -> None:
    assert plot_lines([1.0, 1.0, 0.5, 0.0], labels=[(0, "a"), (3, "b")], marks=[2], height=3) == [
        "100 % |**",
        " 50 % |  *",
        "  0 % |   *",
        "      +--^-",
        "       a  b",
    ]


def test_a_label_that_would_run_into_its_neighbour_is_left_out() -> None:
    assert plot_lines([0.0] * 8, labels=[(0, "long"), (2, "lost"), (6, "b")], height=2)[-1] == "       long  b"


def test_what_is_off_the_scale_stays_in_the_field() -> None:
    assert plot_lines([2.0, -1.0], labels=[], height=2)[:2] == ["100 % |*", "  0 % | *"]


def test_a_small_share_is_still_seen() -> None:
    assert [bar(0.0, 10), bar(0.001, 10), bar(0.5, 10), bar(1.0, 10)] == ["", "#", "#####", "##########"]
