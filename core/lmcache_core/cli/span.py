"""Times as people write and read them."""

from __future__ import annotations

import re

import click

_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(?P<count>\d{1,9}(\.\d{1,3})?) ?(?P<unit>s|m|min|h|d)")


def span(seconds: object) -> str:
    """Write a time in its best unit: ``4.2 s``, ``3 min``, ``5 h``, ``2 d``; ``-`` for none."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return "-"
    if seconds < 10:  # noqa: PLR2004 - one digit before the point leaves room for one behind it
        return f"{seconds:.1f} s"
    for name in ("d", "h", "min"):
        if seconds >= 2 * _UNITS_S[name]:
            return f"{seconds // _UNITS_S[name]:.0f} {name}"
    return f"{seconds:.0f} s"


class SpanType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """Reads ``90s``, ``30m``, ``2h`` or ``1d`` as seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read one; refuse what has no unit."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no time; write a number with its unit, such as 90s, 30m, 2h or 1d", param, ctx)
        return float(found["count"]) * _UNITS_S[found["unit"]]
