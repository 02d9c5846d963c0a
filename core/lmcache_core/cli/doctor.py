"""``lmcachectl doctor``: what works with a configuration, what does not, and what to do."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import click

from lmcache_core.cli.extension import Installed, load_installed
from lmcache_core.cli.finding import Finding, Grade, fail, ok, warn
from lmcache_core.cli.machine import examine_machine
from lmcache_core.cli.server_finding import examine_server
from lmcache_core.cli.stores import examine_stores
from lmcache_core.errors import ConfigError, PluginError
from lmcache_core.loading import Loaded, load
from lmcache_core.registry import PluginRecord, PluginState

_COLORS = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "red"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
)
def doctor(file: Path | None, config_file: Path | None) -> int:
    """Say what works with a configuration and what does not, and what to do.

    Looks at plugins, keys, memory, disk, port and server, pings every store and runs every health check
    once; what the checks store they delete. Ends with 0 when nothing fails, else with 1.
    """
    if file is not None and config_file is not None:
        raise click.UsageError("name the file once, as FILE or with --config")
    count: Counter[Grade] = Counter()
    for finding in _examine(file or config_file):
        count[finding.grade] += 1
        grade = click.style(f"{finding.grade.value:<4}", fg=_COLORS[finding.grade])
        click.echo(f"{grade}  {finding.subject}: {finding.text}")
    click.echo(f"{count[Grade.OK]} ok, {count[Grade.WARN]} to look at, {count[Grade.FAIL]} failed")
    return 1 if count[Grade.FAIL] else 0


def _examine(config_file: Path | None) -> Iterator[Finding]:
    installed = load_installed(config_file)
    yield from _examine_plugins(installed)
    loaded = yield from _examine_configuration(config_file)
    if loaded is not None:
        yield from examine_machine(loaded.configuration.values)
        yield from examine_server(loaded.configuration.values)
        yield from examine_stores(loaded)


def _examine_plugins(installed: Installed) -> Iterator[Finding]:
    for record in installed.registry.plugins:
        yield _judge_plugin(record)


def _judge_plugin(record: PluginRecord) -> Finding:
    subject = f"plugin {record.name}"
    if record.state is PluginState.DISABLED:
        return ok(subject, f"is disabled: {record.reason}" if record.reason else "is disabled")
    if record.state is PluginState.LOADED:
        return ok(subject, f"{record.origin}{f'; {record.reason}' if record.reason else ''}")
    return warn(subject, f"is {record.state.value}: {record.reason}; see: lmcachectl plugins show {record.name}")


def _examine_configuration(config_file: Path | None) -> Generator[Finding, None, Loaded | None]:
    subject = "configuration"
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loaded = load(config_file=config_file)
    except ConfigError as error:
        yield from (fail(subject, problem) for problem in error.problems)
        return None
    except PluginError as error:
        yield fail(subject, str(error))
        return None
    configuration = loaded.configuration
    yield ok(
        subject, f"{configuration.file}" if configuration.file is not None else "no file, so defaults and variables"
    )
    yield from (warn(subject, warning) for warning in configuration.warnings)
    return loaded
