"""Draws one frame of ``lmcachectl health watch``. Everything that came over the wire is plain text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lmcache_core.cli.cache_page import clean
from lmcache_core.cli.history import local_time
from lmcache_core.cli.span import span
from lmcache_core.cli.watcher import Watcher

_SHOWN = 12
_STALE_S = 6.0
_STYLES = MappingProxyType(
    {
        "up": "bold green",
        "degraded": "bold yellow",
        "down": "bold red",
        "unknown": "bold bright_black",
        "maintenance": "bold blue",
        "closed": "green",
        "open": "bold red",
        "half-open": "yellow",
        "ramp": "yellow",
        "left out": "yellow",
        "in use": "green",
    }
)
_DOTS = MappingProxyType({"up": "●", "degraded": "◐", "down": "■", "maintenance": "‖", "unknown": "○"})


def draw(watcher: Watcher) -> Group:
    """Draw what a watcher has seen, its times moved on to now."""
    age_s = watcher.age_s
    if age_s is None:
        return Group(_head("unknown", "no answer yet", watcher.seen.problem, watcher.address, ""))
    if watcher.seen.problem and age_s > _STALE_S:
        title = f"no answer for {span(age_s)}; below is what it said last"
        head = _head("unknown", title, watcher.seen.problem, watcher.address, "")
    else:
        why = watcher.seen.why
        title = f"{clean(why.get('state'))} for {span(_moved(why.get('since_s'), age_s))}"
        reason = clean(why.get("reason")) or "all checks pass"
        head = _head(clean(why.get("state")), title, reason, watcher.address, f"updated {span(age_s)} ago")
    return Group(head, _stores(watcher.seen.why, age_s), _changes(watcher))


def _head(state: str, title: str, reason: str, address: str, age: str) -> Panel:
    style = _STYLES.get(state, "bold")
    words = title.split(" ", 1)
    body = Text.assemble(
        (f"{_DOTS.get(state, '○')} {words[0].upper()}", style), f" {' '.join(words[1:])}\n", (clean(reason), "dim")
    )
    return Panel(
        body, title=Text(address), subtitle=Text(age), title_align="left", subtitle_align="right", border_style=style
    )


def _stores(why: Mapping[str, Any], age_s: float) -> Table:
    table = Table(expand=True, box=None, pad_edge=False, header_style="dim")
    for name in ("part", "state", "gets", "decided by", "for", "next"):
        table.add_column(name, overflow="fold", no_wrap=name in {"state", "for"})
    for one in why.get("explanations", ()):
        state = clean(one.get("state"))
        grounds = [ground for ground in one.get("grounds", ()) if isinstance(ground, dict)] or [{}]
        for place, ground in enumerate(_telling(grounds)):
            first = place == 0
            table.add_row(
                Text((clean(one.get("name")) or "cache") if first else "", "bold"),
                Text(f"{_DOTS.get(state, '○')} {state}" if first else "", _STYLES.get(state, "")),
                Text(clean(one.get("traffic")) if first else ""),
                Text(f"{clean(ground.get('subject'))}: {clean(ground.get('state'))}"),
                Text(span(_moved(ground.get("since_s"), age_s))),
                Text(_next(ground, age_s)),
            )
        evidence = _telling(grounds)[0].get("evidence") or ("",)
        if state not in {"up", "unknown"} and one.get("name"):
            table.add_row("", "", "", Text(clean(evidence[0]), "dim"), "", "")
    return table


def _telling(grounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what is as it should be, unless all is."""
    amiss = [ground for ground in grounds if ground.get("state") not in {"up", "closed", "skipped"}]
    return amiss or grounds[:1]


def _next(ground: Mapping[str, Any], age_s: float) -> str:
    parts = []
    for step in ground.get("next", ()):
        left_s = step.get("in_s")
        when = "" if left_s is None else " now" if left_s - age_s <= 0 else f" in {span(left_s - age_s)}"
        parts.append(clean(step.get("what")) + when)
    return "; ".join(parts)


def _changes(watcher: Watcher) -> Panel:
    table = Table(expand=True, box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=2)
    table.add_column(overflow="fold", ratio=3)
    for one in reversed(watcher.seen.transitions[-_SHOWN:]):
        after = clean(one.get("after"))
        change = Text.assemble(
            (f"{clean(one['before'])} → " if one.get("before") else "", "dim"),
            (after, _STYLES.get(after, "bold")),
            (f"  {clean(one.get('reason'))}" if one.get("reason") else "", "dim"),
        )
        subject = Text.assemble((f"{clean(one.get('kind'))} ", "dim"), clean(one.get("name")))
        table.add_row(local_time(one.get("at_unix_s")), subject, change)
    return Panel(table, title="what changed", title_align="left", border_style="dim")


def _moved(seconds: object, age_s: float) -> object:
    return seconds + age_s if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
