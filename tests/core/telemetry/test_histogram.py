from lmcache_core.telemetry.histogram import Histogram, Histogram2D, bound_name


def test_a_value_at_a_bound_is_in_that_bucket() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (0, 1, 1.5, 5):
        histogram.add(value)
    assert histogram.to_dict() == {"1": 2, "5": 2, "+Inf": 0}


def test_what_is_above_the_last_bound_is_not_lost() -> None:
    histogram = Histogram((1.0, 5.0))
    histogram.add(5.1, 3)
    assert histogram.to_dict() == {"1": 0, "5": 0, "+Inf": 3}


def test_two_bounds_name_a_cell_and_empty_cells_are_left_out() -> None:
    histogram = Histogram2D((1.0, 2.0), (60.0,))
    histogram.add(2, 10)
    histogram.add(9, 61)
    histogram.add(1, 60)
    assert histogram.to_dict() == {"1|60": 1, "2|60": 1, "+Inf|+Inf": 1}


def test_large_bounds_are_written_in_full() -> None:
    assert bound_name(2_592_000.0) == "2592000"
