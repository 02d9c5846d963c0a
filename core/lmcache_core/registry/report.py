"""Records of plugins, as commands and pages show them."""

from __future__ import annotations

from collections.abc import Iterable

from lmcache_core.registry.record import PluginRecord


def to_json(record: PluginRecord, *, traceback: bool = False) -> dict[str, object]:
    """Give a record as JSON values; the traceback only where it was asked for."""
    shown: dict[str, object] = {
        "name": record.name,
        "state": record.state.value,
        "reason": record.reason,
        "distribution": record.distribution,
        "version": record.version,
        "builtin": record.builtin,
        "module": record.target,
        "load_ms": round(record.load_ms, 3),
        "hooks": list(record.hooks),
        "tables": {table: list(keys) for table, keys in record.tables.items()},
        "schemes": list(record.schemes),
        "policies": list(record.policies),
        "checks": list(record.checks),
        "messages": list(record.messages),
        "sinks": list(record.sinks),
        "commands": list(record.commands),
        "lacking": dict(record.lacking),
    }
    if traceback:
        shown["traceback"] = record.traceback
    return shown


def to_lines(record: PluginRecord) -> list[tuple[str, str]]:
    """Give a record as pairs of label and text; what it does not bring is left out."""
    came_with = f"{record.origin} (built in)" if record.builtin else record.origin
    lines = [
        ("name", record.name),
        ("state", record.state.value),
        ("reason", record.reason),
        ("distribution", came_with),
        ("module", record.target),
        ("load time", f"{record.load_ms:.1f} ms" if record.load_ms else ""),
        ("hooks", ", ".join(record.hooks)),
        *(("table", f"[extra_config.{table}] {', '.join(keys)}".rstrip()) for table, keys in record.tables.items()),
        *((label, ", ".join(names)) for label, names in _brought(record)),
        *(("lacking", f"{scheme}:// {reason}") for scheme, reason in record.lacking.items()),
    ]
    return [(label, text) for label, text in lines if text]


def summarize(record: PluginRecord) -> str:
    """Say in one line why a plugin is not loaded, or else what it brings."""
    if record.reason:
        return record.reason
    named = [("tables", tuple(record.tables)), *_brought(record)]
    return "; ".join(f"{label}: {', '.join(names)}" for label, names in named if names)


def _brought(record: PluginRecord) -> Iterable[tuple[str, tuple[str, ...]]]:
    return (
        ("stores", tuple(f"{scheme}://" for scheme in record.schemes)),
        ("policies", record.policies),
        ("checks", record.checks),
        ("messages", record.messages),
        ("sinks", record.sinks),
        ("commands", record.commands),
    )
