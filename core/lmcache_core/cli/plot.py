"""A curve drawn with letters."""

from __future__ import annotations

from collections.abc import Sequence

_POINT, _MARK = "*", "^"


def plot_lines(
    shares: Sequence[float], *, labels: Sequence[tuple[int, str]], marks: Sequence[int] = (), height: int = 11
) -> list[str]:
    """Draw one column for each share, 0 % at the bottom and 100 % at the top.

    Args:
        shares: 0 to 1, from left to right.
        labels: Column and text under the axis, from left to right; one that would run into its neighbour is left out.
        marks: Columns to mark on the axis.
        height: Lines of the field, at least 2.
    """
    rows = [[" "] * len(shares) for _ in range(height)]
    for column, share in enumerate(shares):
        rows[round((1.0 - min(1.0, max(0.0, share))) * (height - 1))][column] = _POINT
    lines = [f"{_tick(number, height):>5} |{''.join(row)}".rstrip() for number, row in enumerate(rows)]
    axis = ["-"] * len(shares)
    for column in marks:
        axis[column] = _MARK
    return [*lines, f"{'':>5} +{''.join(axis)}", f"{'':>7}{_under(labels)}"]


def bar(share: float, width: int = 30) -> str:
    """Draw a share as a bar; a share above 0 has at least one letter."""
    return "#" * max(round(share * width), share > 0)


def _tick(row: int, height: int) -> str:
    percent = round(100 * (1 - row / (height - 1)))
    return f"{percent} %" if row in {0, height // 2, height - 1} else ""


def _under(labels: Sequence[tuple[int, str]]) -> str:
    line = ""
    for column, text in labels:
        if not line or len(line) < column:
            line = f"{line:<{column}}{text}"
    return line
