"""Draws a cache server's status. Everything that came over the wire is plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lmcache_core.cli.cache_page import clean
from lmcache_core.cli.quantity import bytes_text, count_text, share_text
from lmcache_core.cli.span import span

_STYLES: Mapping[str, str] = MappingProxyType(
    {
        "up": "bold green",
        "closed": "bold green",
        "degraded": "bold yellow",
        "draining": "bold yellow",
        "ramp": "bold yellow",
        "half_open": "bold yellow",
        "left out": "bold yellow",
        "maintenance": "bold blue",
        "down": "bold red",
        "open": "bold red",
    }
)
_LONG_S = 10.0
"""A client holds a block while it copies it; one that holds it for longer is stopped or stuck."""

_DOTS: Mapping[str, str] = MappingProxyType(
    {"up": "●", "degraded": "◐", "draining": "◐", "down": "■", "maintenance": "‖"}
)


def draw_status(document: Mapping[str, Any], *, sessions: int | None = None) -> Group:
    """Draw a whole status.

    Args:
        document: As the server sent it; whatever is lacking shows as ``-``.
        sessions: Most that are shown, the oldest leases first; None for all.
    """
    parts: list[RenderableType] = [*head(document), facts(document), Text(), tiers(document)]
    parts += [Text(), sessions_table(document, sessions)]
    if rows_of(document, "tenants"):
        parts += [Text(), tenants(document)]
    return Group(*parts)


def head(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Give the verdict, and why where it is not the best."""
    health = table_of(document, "health")
    state = "draining" if document.get("draining") is True else clean(health.get("state")) or "unknown"
    style = _STYLES.get(state, "bold")
    yield Text.assemble(
        (f"{_DOTS.get(state, '○')} {state.upper()}", style),
        f" for {span(health.get('since_s'))}",
        (f"   lmcache-core {clean(document.get('version'))}, pid {clean(document.get('pid'))}", "dim"),
        (f", up {span(document.get('uptime_s'))}", "dim"),
    )
    if health.get("reason"):
        yield _indented(clean(health.get("reason")), style)
    for name, reason in table_of(document, "plugins_failed").items():
        yield _indented(f"plugin {clean(name)} failed: {clean(reason)}", "yellow")


def facts(document: Mapping[str, Any]) -> Table:
    """Give where it is, what it holds and what it has done."""
    arena, done = table_of(document, "arena"), table_of(document, "counters")
    used, capacity = arena.get("used_bytes"), arena.get("capacity_bytes")
    pages = [clean(document[name]) for name in ("http", "grpc") if document.get(name)]
    table = _grid("dim", "")
    table.add_row("address", Text(clean(document.get("address")) or "-"))
    table.add_row("config", Text(clean(document.get("config_file")) or "no file"))
    table.add_row("pages", Text(", ".join(pages) or "none"))
    table.add_row(
        "memory",
        f"{bytes_text(used)} of {bytes_text(capacity)} in use ({share_text(used, capacity)}), "
        f"{count_text(arena.get('chunks'))} chunks, {bytes_text(lent_bytes(document))} lent",
    )
    table.add_row(
        "tokens",
        f"{count_text(done.get('stored_tokens'))} stored, {count_text(done.get('requested_tokens'))} looked up, "
        f"{share_text(done.get('hit_tokens'), done.get('requested_tokens'))} of them found, "
        f"{count_text(done.get('retrieved_tokens'))} retrieved",
    )
    table.add_row(
        "moved",
        f"{bytes_text(done.get('stored_bytes'))} in, {bytes_text(done.get('retrieved_bytes'))} out, "
        f"{count_text(done.get('calls'))} calls, {count_text(done.get('refused_calls'))} of them refused",
    )
    return table


def tiers(document: Mapping[str, Any]) -> Table:
    """Give the tiers in their order, each with its state and its address."""
    table = _columns("tier", "state", "used", "waiting", "where, and what is amiss")
    for tier in rows_of(document, "tiers"):
        state = clean(tier.get("state")) or "-"
        used, capacity = bytes_text(tier.get("used_bytes")), bytes_text(tier.get("capacity_bytes"))
        where = [text for text in (clean(tier.get("url")), clean(tier.get("reason"))) if text]
        table.add_row(
            Text(clean(tier.get("name")), "bold"),
            Text(state, _STYLES.get(state, "")),
            used if capacity == "-" else f"{used} of {capacity}",
            count_text(tier.get("waiting_chunks")),
            Text(": ".join(where) or "memory of this server"),
        )
    return table


def sessions_table(document: Mapping[str, Any], most: int | None = None) -> RenderableType:
    """Give who is connected, and which blocks each has out."""
    found = rows_of(document, "sessions")
    if not found:
        return Text("no client is connected", "dim")
    shown = sorted(found, key=lambda one: -_number(one.get("oldest_lease_s")))[:most]
    table = _columns("client", "pid", "model", "rank", "leases", "oldest", "lent", "promised", "idle")
    for one in shown:
        models = rows_of(one, "registrations")
        table.add_row(
            Text(clean(one.get("name")) or "-", "bold"),
            Text(clean(one.get("pid"))),
            Text(", ".join(dict.fromkeys(clean(part.get("model_name")) for part in models)) or "not registered"),
            Text(", ".join(dict.fromkeys(map(_ranks, models))) or "-"),
            count_text(one.get("leases")),
            Text(span(one.get("oldest_lease_s")), "yellow" if _number(one.get("oldest_lease_s")) > _LONG_S else ""),
            bytes_text(one.get("leased_bytes")),
            count_text(one.get("promises")),
            span(one.get("idle_s")),
        )
    left = len(found) - len(shown)
    return table if not left else Group(table, Text(f"and {left} more; see: lmcachectl status", "dim"))


def tenants(document: Mapping[str, Any]) -> Table:
    """Give what each tenant holds of its quota."""
    table = _columns("tenant", "used", "quota", "share", "chunks")
    for one in rows_of(document, "tenants"):
        table.add_row(
            Text(clean(one.get("tenant")) or "(none)", "bold"),
            bytes_text(one.get("used_bytes")),
            bytes_text(one.get("quota_bytes") or None),
            share_text(one.get("used_bytes"), one.get("quota_bytes")),
            count_text(one.get("chunks")),
        )
    return table


def table_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give an object of a document; an empty one where it has none."""
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def rows_of(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Give the objects of a list; none where it has none."""
    found = document.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def lent_bytes(document: Mapping[str, Any]) -> object:
    """Give the bytes that clients fill or read now; None where nothing says."""
    sizes = [one.get("leased_bytes") for one in rows_of(document, "sessions")]
    known = [size for size in sizes if isinstance(size, int)]
    return table_of(document, "arena").get("leased_bytes", sum(known) if len(known) == len(sizes) else None)


def _ranks(registration: Mapping[str, Any]) -> str:
    ranks = registration.get("ranks")
    shown = ",".join(map(clean, ranks)) if isinstance(ranks, list) else "-"
    return f"{shown} of {clean(registration.get('world_size')) or '-'}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else -1.0


def _indented(text: str, style: str) -> Padding:
    return Padding(Text(text, style), (0, 0, 0, 2))


def _grid(*styles: str) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for style in styles:
        table.add_column(style=style, overflow="fold")
    return table


def _columns(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold", min_width=min(len(title), 8))
    return table
