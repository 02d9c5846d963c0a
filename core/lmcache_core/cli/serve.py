"""``lmcachectl serve``: the cache server of a host, in the foreground."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lmcache_core.cli.notify import notify
from lmcache_core.cli.serve_report import report_fields, report_lines
from lmcache_core.cli.server_log import FORMATTERS, ServerLog
from lmcache_core.cli.setting import read_settings, set_option
from lmcache_core.cli.stop_signals import StopSignals
from lmcache_core.cli.target import import_target
from lmcache_core.errors import ConfigError, LMCacheError

log = logging.getLogger(__name__)

_SERVER = "lmcache_core.app.server:CacheServer"
_EXTRA = frozenset({"msgspec", "zmq"})
_MOST_FILES = 1 << 20
_INSTALL = "pip install 'lmcache-core[server]'"


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
)
@set_option
@click.option("--log-format", type=click.Choice(list(FORMATTERS)), help="Instead of the configured log_format.")
@click.option(
    "--address-file",
    type=click.Path(path_type=Path),
    help="Write the addresses that are served to this file, as JSON, and remove it at the end.",
)
@click.pass_context
def serve(
    context: click.Context,
    config_file: Path | None,
    settings: tuple[str, ...],
    log_format: str | None,
    address_file: Path | None,
) -> int:
    """Run the cache server of this host until SIGTERM or Ctrl-C.

    It stays in the foreground and logs to stderr. Told to end, it takes no new clients, writes what
    waits to be written for at most server_drain_secs and ends with 0; told twice, it ends at once.
    """
    overrides = read_settings(settings)
    if log_format is not None:
        overrides["log_format"] = log_format
    context.obj.log.step_aside()
    _allow_files()
    with ServerLog(debug=context.obj.debug) as records, StopSignals() as signals:
        server = _build(config_file, overrides)
        values = server.config.values
        records.begin(values.log_format, "DEBUG" if context.obj.debug else values.log_level)
        try:
            _start(server)
            with _addresses(address_file, server.status()):
                _tell(server)
                notify("READY=1", f"STATUS=serving at {server.address}")
                _wait(signals, values.server_drain_secs)
        finally:
            server.stop()
        log.info("the server has ended")
    return 0


def _allow_files() -> None:
    """Raise the limit of open files as far as the system lets us: each call that a client has under way needs one.

    Where no file can be opened any more, new clients wait.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(OSError, ValueError):  # a system that lets us not: what there is must do
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _build(config_file: Path | None, overrides: dict[str, object]) -> Any:
    """Build the server; what a plugin prints does not reach stdout, which is the command's own."""
    try:
        server: Any = import_target(_SERVER)
    except ImportError as error:
        if error.name not in _EXTRA:
            raise
        raise ConfigError(f"a cache server needs {error.name!r}; run: {_INSTALL}") from error
    with contextlib.redirect_stdout(sys.stderr):
        return server.from_config(config_file, overrides=overrides, environ=os.environ)


def _start(server: Any) -> None:
    try:
        server.start()
    except ConfigError as error:
        # The configuration was right when it was read: the address is taken, and may be free the next time.
        raise LMCacheError(str(error)) from error


def _tell(server: Any) -> None:
    """Say what was started: a screen on stdout for people, one record of the log for programs."""
    told = (server.status(), server.config, server.registry.plugins)
    if server.config.values.log_format == "json":
        log.info("serving at %s", server.address, extra=report_fields(*told))
        return
    for line in report_lines(*told):
        click.echo(line)
    sys.stdout.flush()
    log.info("serving at %s", server.address)


def _wait(signals: StopSignals, drain_s: float) -> None:
    while (came := signals.wait()) is signal.SIGHUP:
        log.warning("SIGHUP: nothing is read again while the server runs; restart it to change its configuration")
    name = came.name if came is not None else ""
    log.info("%s: no new clients; what waits is written for at most %g s; a second signal ends at once", name, drain_s)
    notify("STOPPING=1", "STATUS=writing what waits")


@contextlib.contextmanager
def _addresses(file: Path | None, status: dict[str, Any]) -> Iterator[None]:
    """Keep a file that says where the server is, as long as it is there."""
    if file is None:
        yield
        return
    shown = {name: status.get(name) for name in ("pid", "address", "http", "grpc")}
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(shown) + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise LMCacheError(f"--address-file: {file} cannot be written: {(error.strerror or '').lower()}") from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
