"""``lmcachectl plugins``: what is installed, what it brings, and why it does not load."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lmcache_core.cli.extension import Installed, load_installed
from lmcache_core.errors import ConfigError
from lmcache_core.registry import PluginRecord, PluginState
from lmcache_core.registry.report import summarize, to_json, to_lines

_HEADER = ("plugin", "state", "distribution", "ms", "brings, or why it does not load")
_NOT_USABLE = frozenset({PluginState.FAILED, PluginState.UNAVAILABLE, PluginState.INCOMPATIBLE})
_CONFIG = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file whose [plugins] counts; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def plugins() -> None:
    """List the plugins, or show one."""


@plugins.command("list")
@_CONFIG
@_JSON
@click.option("--no-plugins", is_flag=True, help="Load the built-in plugins only.")
def list_plugins(config_file: Path | None, as_json: bool, no_plugins: bool) -> int:
    """List all plugins, whether they load or not. Ends with 0 even when some do not."""
    installed = load_installed(config_file, third_party=not no_plugins)
    problems = [line for problem in installed.registry.problems for line in str(problem).splitlines()]
    if as_json:
        shown = [to_json(record) for record in installed.registry.plugins]
        _print_json({"plugins": shown, "problems": problems, "configuration": list(installed.doubts)})
        return 0
    _print_table(installed.registry.plugins)
    _warn_of_doubts(installed)
    for problem in problems:
        click.echo(f"this stops a start-up: {problem}", err=True)
    return 0


@plugins.command("show")
@click.argument("name")
@_CONFIG
@_JSON
@click.pass_context
def show_plugin(context: click.Context, name: str, config_file: Path | None, as_json: bool) -> int:
    """Show one plugin: where it came from, what it owns, or why it does not load.

    Ends with 3 when the plugin cannot be used and with 2 when there is none of the name. The
    traceback of a plugin that failed is shown by lmcachectl --debug plugins show NAME.
    """
    installed = load_installed(config_file)
    records = [record for record in installed.registry.plugins if record.name == name]
    if not records:
        raise ConfigError(_no_such_plugin(name, installed))
    debug = bool(getattr(context.obj, "debug", False))
    if as_json:
        shown = [to_json(record, traceback=debug) for record in records]
        _print_json(shown[0] if len(shown) == 1 else shown)
    else:
        _print_records(records, traceback=debug)
    _warn_of_doubts(installed)
    return 3 if any(record.state in _NOT_USABLE for record in records) else 0


def _no_such_plugin(name: str, installed: Installed) -> str:
    known = [record.name for record in installed.registry.plugins]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see: lmcachectl plugins list"
    return f"no plugin named {name!r} is installed; {hint}"


def _warn_of_doubts(installed: Installed) -> None:
    for doubt in installed.doubts:
        click.echo(f"warning: [plugins] of the configuration is not heeded: {doubt}", err=True)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def _print_records(records: Sequence[PluginRecord], *, traceback: bool) -> None:
    for number, record in enumerate(records):
        if number:
            click.echo()
        lines = to_lines(record)
        width = max(len(label) for label, _ in lines)
        for label, text in lines:
            click.echo(f"{label:<{width}}  {text}")
        if traceback and record.traceback:
            click.echo(record.traceback, nl=False)


def _print_table(records: Sequence[PluginRecord]) -> None:
    rows = [
        (record.name, record.state.value, record.origin, f"{record.load_ms:.1f}", summarize(record))
        for record in records
    ]
    if sys.stdout.isatty():
        _print_rich(rows)
        return
    widths = [max(len(row[column]) for row in (_HEADER, *rows)) for column in range(len(_HEADER) - 1)]
    for row in (_HEADER, *rows):
        cells = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]).rstrip())


def _print_rich(rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box, console, table  # noqa: PLC0415 - 17 ms that only a terminal needs

    shown = table.Table(box=box.SIMPLE_HEAD)
    for title in _HEADER:
        shown.add_column(title, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    console.Console(markup=False, highlight=False).print(shown)
