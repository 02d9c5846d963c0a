"""``lmcachectl health``: what a running cache says of itself, and what an operator may order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import click

from lmcache_core.cli.cache_page import DEFAULT_URL, CachePage, clean
from lmcache_core.cli.span import span
from lmcache_core.cli.target import import_target

_HEADER = ("check", "state", "since", "age", "next run", "policy", "reason")


_COMMANDS = {
    "drain": "lmcache_core.cli.override:drain",
    "history": "lmcache_core.cli.history:history",
    "override": "lmcache_core.cli.override:override",
    "overrides": "lmcache_core.cli.override:overrides",
    "watch": "lmcache_core.cli.watch:watch",
    "why": "lmcache_core.cli.why:why",
}


class HealthGroup(click.Group):
    """Its sub-commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name them."""
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        del ctx
        target = _COMMANDS.get(cmd_name)
        return None if target is None else cast("click.Command", import_target(target))


@click.group(cls=HealthGroup, invoke_without_command=True)
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Address of the cache's HTTP pages.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def health(ctx: click.Context, url: str, as_json: bool) -> int | None:
    """Print the health verdict of a running cache, explain it, or overrule it.

    Ends with 0 when it is healthy and with 1 when it is not, or does not answer.
    """
    if ctx.invoked_subcommand is not None:
        return None
    cache = CachePage(url)
    report = cache.read("/health", {"healthy": object, "checks": list})
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        for line in _lines(report, f"{cache.address}/health"):
            click.echo(line)
    return 0 if report.get("healthy") is True else 1


def _lines(report: Mapping[str, Any], page: str) -> list[str]:
    state = clean(report.get("state")).upper()
    reason = clean(report.get("reason"))
    lines = [f"{state} for {span(report.get('since_s'))}, says {page}{f': {reason}' if reason else ''}"]
    rows = [_row(check) for check in report["checks"] if isinstance(check, dict)]
    if rows:
        lines += ["", *_table([_HEADER, *rows])]
    for title, key in (("bypassed", "bypassed"), ("failed plugin", "plugins_failed")):
        found = report.get(key)
        if isinstance(found, dict) and found:
            lines += ["", *(f"{title}: {clean(name)}: {_said(what)}" for name, what in sorted(found.items()))]
    return lines


def _row(check: Mapping[str, Any]) -> tuple[str, ...]:
    policy = clean(check.get("policy")) + (" (engaged)" if check.get("engaged") is True else "")
    return (
        clean(check.get("name")),
        clean(check.get("state")),
        span(check.get("since_s")),
        span(check.get("age_s")),
        span(check.get("next_run_s")),
        policy,
        clean(check.get("reason")),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER) - 1)]
    return [
        "  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _said(what: object) -> str:
    return ", ".join(map(clean, what)) if isinstance(what, list) else clean(what)
