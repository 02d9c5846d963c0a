"""Draws one frame of ``lmcachectl top``, and its line where there is no screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lmcache_core.cli.quantity import bytes_text, count_text, share_text
from lmcache_core.cli.rates import RateMeter, Rates
from lmcache_core.cli.status_text import head, lent_bytes, rows_of, sessions_table, table_of, tenants, tiers

_BARS = " ▁▂▃▄▅▆▇█"
_FULL, _EMPTY = "█", "░"
_GAUGE_COLUMNS = 30
_TRACE_COLUMNS = 40
_TIGHT_COLUMNS = 90
_BYTES_IN_GB = 1e9
_FIXED_LINES = 17
"""Lines of a frame beside those of tiers, clients and tenants."""

LINE_HEADER = f"{'hits':>7}  {'looked up/s':>11}  {'retrieved/s':>11}  {'stored/s':>9}  {'GB/s out':>8}  {'GB/s in':>8}  {'calls/s':>8}  {'refused/s':>9}  {'memory':>7}  {'clients':>7}"  # noqa: E501 - the header as it is printed


def draw_top(document: Mapping[str, Any], meter: RateMeter, *, columns: int, lines: int, note: str = "") -> Group:
    """Draw one frame.

    Args:
        document: The newest status.
        meter: That took it.
        columns: Of the screen.
        lines: Of the screen; so many clients are shown as fit.
        note: What is amiss with the view itself.
    """
    parts: list[RenderableType] = [*head(document)]
    if note:
        parts.append(Text(note, "bold red"))
    parts += [_memory(document), Text(), _rates(meter, columns), Text(), tiers(document), Text()]
    room = lines - _FIXED_LINES - len(rows_of(document, "tiers")) - len(rows_of(document, "tenants"))
    parts.append(sessions_table(document, max(2, room)))
    if rows_of(document, "tenants"):
        parts += [Text(), tenants(document)]
    return Group(*parts)


def top_line(document: Mapping[str, Any], rates: Rates) -> str:
    """Write the same in one line, under `LINE_HEADER`."""
    arena = table_of(document, "arena")
    memory = share_text(arena.get("used_bytes"), arena.get("capacity_bytes"))
    return (
        f"{_share(rates.hit_share):>7}  {count_text(rates.requested_tokens):>11}  "
        f"{count_text(rates.retrieved_tokens):>11}  {count_text(rates.stored_tokens):>9}  "
        f"{_gigabytes(rates.retrieved_bytes):>8}  {_gigabytes(rates.stored_bytes):>8}  {count_text(rates.calls):>8}  "
        f"{count_text(rates.refused):>9}  {memory:>7}  {len(rows_of(document, 'sessions')):>7}"
    )


def trace(values: Iterable[float | None], columns: int, full: float | None = None) -> str:
    """Draw the last values as bars, the newest on the right; above 0 none is empty.

    Args:
        values: Oldest first; None counts as 0.
        columns: As many of them are drawn.
        full: What a full bar is; None for the highest value.
    """
    shown = [value if value is not None else 0.0 for value in values][-columns:]
    most = max(shown, default=0.0) if full is None else full
    steps = len(_BARS) - 1
    return "".join(_BARS[max(round(value / most * steps), value > 0)] if most else _BARS[0] for value in shown).rjust(
        columns
    )


def _memory(document: Mapping[str, Any]) -> Text:
    arena = table_of(document, "arena")
    used, capacity = arena.get("used_bytes"), arena.get("capacity_bytes")
    filled = 0
    if isinstance(used, (int, float)) and isinstance(capacity, (int, float)) and capacity > 0:
        filled = round(_GAUGE_COLUMNS * min(1.0, used / capacity))
    return Text.assemble(
        ("memory ", "dim"),
        (_FULL * filled, "cyan"),
        (_EMPTY * (_GAUGE_COLUMNS - filled), "dim"),
        f" {bytes_text(used)} of {bytes_text(capacity)}, {bytes_text(lent_bytes(document))} lent",
    )


def _rates(meter: RateMeter, columns: int) -> Table:
    now, past = meter.now, list(meter.history)
    width = _TRACE_COLUMNS if columns >= _TIGHT_COLUMNS else _TRACE_COLUMNS // 2
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("a second", justify="right", min_width=9)
    table.add_column("", min_width=12)
    table.add_column(Text("before", justify="right"), style="cyan", min_width=width, no_wrap=True)
    hits = trace([one.hit_share for one in past], width, full=1.0)
    table.add_row("found of what was looked up", Text(_share(now.hit_share), "bold"), "", hits)
    rows = (
        ("tokens looked up", count_text(now.requested_tokens), "", [one.requested_tokens for one in past]),
        (
            "tokens retrieved",
            count_text(now.retrieved_tokens),
            f"{_gigabytes(now.retrieved_bytes)} GB/s",
            [one.retrieved_tokens for one in past],
        ),
        (
            "tokens stored",
            count_text(now.stored_tokens),
            f"{_gigabytes(now.stored_bytes)} GB/s",
            [one.stored_tokens for one in past],
        ),
        ("calls", count_text(now.calls), f"{count_text(now.refused)} refused", [one.calls for one in past]),
    )
    for name, amount, more, before in rows:
        table.add_row(name, Text(amount, "bold"), more, trace(before, width))
    return table


def _share(share: float | None) -> str:
    return "-" if share is None else share_text(share, 1)


def _gigabytes(amount: float | None) -> str:
    return "-" if amount is None else f"{amount / _BYTES_IN_GB:.2f}"
