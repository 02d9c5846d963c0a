"""``lmcachectl config``: check, show, describe and convert the configuration."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from lmcache_core.cli.extension import load_installed
from lmcache_core.config.configuration import Configuration, Row
from lmcache_core.config.convert import Conversion
from lmcache_core.config.document import read_text
from lmcache_core.config.model import TableOwner
from lmcache_core.config.origin import KeyPath, key_text, shown_path
from lmcache_core.config.schema import json_schema
from lmcache_core.config.toml_text import dump_toml
from lmcache_core.config.yaml_text import YamlDocument, read_yaml
from lmcache_core.errors import ConfigError
from lmcache_core.loading import load

_Command = TypeVar("_Command", bound=Callable[..., Any])
_HEADER = ("key", "value", "source", "owner")
_OWNER_ONLY = 0o600


def _config_option(command: _Command) -> _Command:
    option = click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="TOML file; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
    )
    return option(command)


@click.group()
def config() -> None:
    """Check, show, convert or describe the configuration."""


@config.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_config_option
def check(file: Path | None, config_file: Path | None) -> int:
    """Check file, environment and plugins together; report everything that is wrong at once.

    Ends with 0, with 2 when something is wrong, or with 3 when a required plugin does not load.
    """
    if file is not None and config_file is not None:
        raise click.UsageError("name the file once, as FILE or with --config")
    configuration = _load(file or config_file)
    _tell(configuration)
    click.echo(f"ok: {_file_line(configuration)}")
    return 0


@config.command("show")
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "all_rows", is_flag=True, help="Also tables of plugins that the configuration leaves out.")
def show(config_file: Path | None, as_json: bool, all_rows: bool) -> int:
    """Show the effective value of every key, where it comes from, and who owns it; secrets are masked."""
    configuration = _load(config_file)
    rows = configuration.rows(all=all_rows)
    if as_json:
        keys = [{"key": row.key, "value": row.value, "source": row.source, "owner": row.owner} for row in rows]
        file = None if configuration.file is None else str(configuration.file)
        click.echo(json.dumps({"file": file, "warnings": configuration.warnings, "keys": keys}, indent=2))
        return 0
    click.echo(_file_line(configuration))
    _print_table([_HEADER, *map(_cells, rows)])
    _tell(configuration)
    return 0


@config.command("schema")
@_config_option
def schema(config_file: Path | None) -> int:
    """Print the JSON Schema of the configuration, the loaded plugins' tables included."""
    installed = load_installed(config_file)
    owners = [TableOwner(each.value, each.plugin, each.origin) for each in installed.registry.tables()]
    click.echo(json.dumps(json_schema(owners), indent=2))
    return 0


@config.command("convert")
@click.argument("old", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write there instead of to the terminal.")
@click.option("--force", is_flag=True, help="Overwrite the output file.")
def convert(old: Path, output: Path | None, force: bool) -> int:
    """Convert LMCache's YAML to TOML; names each key that was dropped, moved or rewritten, and why.

    The TOML goes to the terminal or to a file, the notes to stderr. The notes show no secrets;
    the TOML holds those of the YAML.
    """
    document = read_yaml(read_text(old, named_by="OLD"), place=shown_path(old))
    conversion = Conversion(frozenset(load_installed().registry.backends()))
    conversion.convert(document.values)
    try:
        text = dump_toml(conversion.tree)
    except ValueError as error:
        raise ConfigError(f"{shown_path(old)}: {error}") from None
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(text, output, force=force)
    repeated = [(path, "is written twice; the last one counts") for path in document.repeated]
    for path, note in sorted([*repeated, *conversion.notes], key=lambda each: _line(document, each[0])):
        click.echo(_note(old, _line(document, path), path, note), err=True)
    return 0


def _load(config_file: Path | None) -> Configuration:
    """Load; what a plugin prints does not reach stdout, which is the command's own."""
    with contextlib.redirect_stdout(sys.stderr):
        return load(config_file=config_file).configuration


def _file_line(configuration: Configuration) -> str:
    return f"config file: {shown_path(configuration.file) if configuration.file is not None else 'none'}"


def _tell(configuration: Configuration) -> None:
    for warning in configuration.warnings:
        click.echo(f"warning: {warning}", err=True)
    if configuration.ignored:
        names = ", ".join(configuration.ignored)
        click.echo(f"note: set by Kubernetes or Docker for a service, left alone: {names}", err=True)


def _cells(row: Row) -> tuple[str, str, str, str]:
    return row.key, row.value_shown, row.source, row.owner


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER) - 1)]
    for row in rows:
        cells = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]).rstrip())


def _line(document: YamlDocument, path: KeyPath) -> int:
    return next((document.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in document.lines), 0)


def _note(old: Path, line: int, path: KeyPath, text: str) -> str:
    place = f"{shown_path(old)}:{line}" if line else shown_path(old)
    return f"{place}: {key_text(path)}: {text}"


def _write(text: str, output: Path, *, force: bool) -> None:
    """Write a file that may hold secrets: for its owner only, and never over another one unasked."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with os.fdopen(os.open(output, flags, _OWNER_ONLY), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"--output: {shown_path(output)!r} exists; name another file, or give --force") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"--output: {shown_path(output)!r} cannot be written: {reason}") from None
