import click
import pytest

from lmcache_core.cli.span import SpanType, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172800, "2 d"),
        (None, "-"),
        ("x", "-"),
        (True, "-"),
    ],
)
def test_spans_are_short(seconds: object, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("30 min", 1800), ("2h", 7200), ("1d", 86400), ("1.5h", 5400)]
)
def test_times_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert SpanType().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["30", "m", "-5m", "1w", "1e3s", "", "5 m m", "inf s"])
def test_a_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        SpanType().convert(text, None, None)

    assert caught.value.message == f"{text!r} is no time; write a number with its unit, such as 90s, 30m, 2h or 1d"
