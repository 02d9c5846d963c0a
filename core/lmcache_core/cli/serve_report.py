"""What a server says of itself when it has started: one screen for people, one record for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lmcache_core.cli.cache_page import clean
from lmcache_core.cli.quantity import bytes_text
from lmcache_core.cli.status_text import rows_of, table_of
from lmcache_core.config.configuration import Configuration
from lmcache_core.registry import PluginRecord, PluginState

_COLUMNS = 100
_LABEL_COLUMNS = 9
_UNUSABLE = frozenset({PluginState.FAILED, PluginState.UNAVAILABLE, PluginState.INCOMPATIBLE})


def report_lines(
    status: Mapping[str, Any], configuration: Configuration, plugins: Sequence[PluginRecord]
) -> Iterator[str]:
    """Give the report's lines; a long one is folded.

    Args:
        status: The server's own; addresses in it have no credentials.
        configuration: That it was built with.
        plugins: All that were found.
    """
    values = configuration.values
    yield f"lmcache-core {clean(status.get('version'))} cache server, pid {clean(status.get('pid'))}"
    yield _line("config", str(configuration.file) if configuration.file is not None else "no file: defaults")
    yield _line("address", clean(status.get("address")))
    yield _line("http", clean(status.get("http")) or _why_no_page(values.internal_api_server_enabled, "http"))
    yield _line("grpc", clean(status.get("grpc")) or _why_no_page(values.internal_grpc_port is not None, "grpc"))
    capacity = bytes_text(table_of(status, "arena").get("capacity_bytes"))
    yield _line("memory", f"{capacity} shared with its clients, in chunks of about {values.chunk_size} tokens")
    for place, tier in enumerate(rows_of(status, "tiers")):
        yield _line("tiers" if place == 0 else "", _tier(place, tier))
    yield from _plugins(plugins)
    health = table_of(status, "health")
    yield _line("health", " ".join(filter(None, (clean(health.get("state")), clean(health.get("reason"))))))


def report_fields(
    status: Mapping[str, Any], configuration: Configuration, plugins: Sequence[PluginRecord]
) -> dict[str, Any]:
    """Give the same as one flat record for a structured log."""
    return {
        "version": status.get("version"),
        "boot_id": status.get("boot_id"),
        "pid": status.get("pid"),
        "config_file": None if configuration.file is None else str(configuration.file),
        "address": status.get("address"),
        "http": status.get("http"),
        "grpc": status.get("grpc"),
        "capacity_bytes": table_of(status, "arena").get("capacity_bytes"),
        "chunk_tokens": configuration.values.chunk_size,
        "tiers": [{"name": tier.get("name"), "url": tier.get("url")} for tier in rows_of(status, "tiers")],
        "plugins": {one.name: one.version for one in plugins if one.state is PluginState.LOADED},
        "plugins_failed": {one.name: one.reason for one in plugins if one.state in _UNUSABLE},
        "health": table_of(status, "health").get("state"),
    }


def _line(label: str, text: str) -> str:
    return textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=f"{label:<{_LABEL_COLUMNS}}",
        subsequent_indent=" " * _LABEL_COLUMNS,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _why_no_page(wanted: bool, kind: str) -> str:
    if wanted:
        return "not served; the log says why"
    key = "internal_api_server_enabled = true" if kind == "http" else "internal_grpc_port"
    return f"off; {key} turns it on"


def _tier(place: int, tier: Mapping[str, Any]) -> str:
    size = bytes_text(tier.get("capacity_bytes"))
    where = clean(tier.get("url")) or "memory"
    state = clean(tier.get("state"))
    return (
        f"{place} {clean(tier.get('name'))}  {where}{'' if size == '-' else f', {size}'}{f'  {state}' if state else ''}"
    )


def _plugins(plugins: Sequence[PluginRecord]) -> Iterator[str]:
    origins: dict[str, list[str]] = {}
    for one in plugins:
        if one.state is PluginState.LOADED:
            origins.setdefault(one.origin, []).append(one.name)
    for place, (origin, names) in enumerate(origins.items()):
        yield _line("plugins" if place == 0 else "", f"{origin}: {', '.join(sorted(names))}")
    for one in plugins:
        if one.state in _UNUSABLE:
            yield _line("", f"{one.origin}: {one.name} is {one.state.value}: {clean(one.reason)}")
