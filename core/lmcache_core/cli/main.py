"""Entry of ``lmcachectl``: global options, lazily imported sub-commands, errors as one sentence each."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import click

from lmcache_core.cli.logs import StderrLog
from lmcache_core.cli.target import import_target
from lmcache_core.errors import ConfigError, LMCacheError
from lmcache_core.version import __version__

COMMANDS = {
    "config": ("lmcache_core.cli.config:config", "Check, show, convert or describe the configuration."),
    "doctor": ("lmcache_core.cli.doctor:doctor", "Say what works with a configuration and what does not."),
    "fault": ("lmcache_core.testing.command:fault", "Harm connections on purpose, for drills."),
    "health": ("lmcache_core.cli.health:health", "Print, explain, watch or overrule the health of a running cache."),
    "plugins": ("lmcache_core.cli.plugins:plugins", "List the plugins, or show one."),
    "reuse": ("lmcache_core.cli.reuse:reuse", "Show how chunks are reused."),
    "serve": ("lmcache_core.cli.serve:serve", "Run the cache server of this host, in the foreground."),
    "status": ("lmcache_core.cli.status:status", "Print how a cache server fares, on one screen."),
    "top": ("lmcache_core.cli.top:top", "Watch what a cache server does, live."),
    "usage": ("lmcache_core.cli.usage:usage", "Show what usage telemetry would send."),
}
"""Built-in sub-commands: name to where it is, and its line of help. Nothing is imported for ``--help``."""

_OF_PLUGINS = "lmcache_core.cli.extension:find_plugin_command"
_EPILOG = "Plugins may add commands; see: lmcachectl plugins list"
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_NO_ARGUMENTS: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.2 and later


@dataclass
class Session:
    """Global options of one run; ``ctx.obj`` of every sub-command."""

    log: StderrLog
    debug: bool = False


def _show_all(ctx: click.Context, parameter: click.Parameter, debug: bool) -> bool:
    """Heed ``--debug`` at once: looking for a plugin's command comes before the group's own function."""
    del parameter
    if debug:
        session = ctx.ensure_object(Session)
        session.debug = True
        session.log.show_all()
    return debug


class LazyGroup(click.Group):
    """The root command. A sub-command's module is imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the built-in commands."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; an unknown name is looked for among the plugins' commands."""
        del ctx
        if cmd_name in COMMANDS:
            return cast("click.Command", import_target(COMMANDS[cmd_name][0]))
        find = cast("Callable[[str], click.Command | None]", import_target(_OF_PLUGINS))
        return find(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name, or say which name is near."""
        command = self.get_command(ctx, args[0])
        if command is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(COMMANDS))}"
            raise click.UsageError(f"no command {args[0]!r}, built in or of a plugin; {hint}", ctx)
        return super().resolve_command(ctx, args) if command is None else (args[0], command, args[1:])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])


@click.group(cls=LazyGroup, epilog=_EPILOG)
@click.version_option(version=__version__, prog_name="lmcachectl")
@click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show log lines and tracebacks.",
)
def lmcachectl() -> None:
    """Look after an LMCache-style KV cache: its configuration, plugins and health."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``lmcachectl`` and give the exit code; no exception leaves, and no traceback but with ``--debug``."""
    session = Session(StderrLog())
    try:
        with session.log:
            code = _run(argv, session)
        sys.stdout.flush()
    except BrokenPipeError:
        _quiet_stdout()
        return 1
    except Exception as error:  # noqa: BLE001 - the last border: a user gets a sentence, and the traceback on demand
        return _tell(error, session)
    return code


def _run(argv: Sequence[str] | None, session: Session) -> int:
    args = None if argv is None else list(argv)
    try:
        code: object = lmcachectl.main(args=args, prog_name="lmcachectl", obj=session, standalone_mode=False)
    except (KeyboardInterrupt, click.Abort) as error:
        return 1 if isinstance(error.__cause__, EOFError) else _INTERRUPTED
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            _write(code)
            return 1
    return code if isinstance(code, int) else 0


def _tell(error: Exception, session: Session) -> int:
    if session.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, ConfigError):
        _write(*error.problems)
        return error.exit_code
    if isinstance(error, LMCacheError):
        _write(str(error))
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _tell_usage(error)
    _write(f"internal error: {type(error).__name__}: {error}; run lmcachectl --debug to see where")
    return 1


def _tell_usage(error: click.ClickException) -> int:
    if isinstance(error, _NO_ARGUMENTS):
        error.show()
        return error.exit_code
    message = error.format_message().rstrip(".")
    _write(message[:1].lower() + message[1:])
    context = getattr(error, "ctx", None)
    if isinstance(context, click.Context):
        click.echo(f"see: {context.command_path} --help", err=True)
    return error.exit_code


def _write(*sentences: str) -> None:
    for sentence in sentences:
        click.echo(f"error: {sentence}", err=True)


def _quiet_stdout() -> None:
    """Keep Python's last flush from complaining of a reader that is gone."""
    with open(os.devnull, "w", encoding="utf-8") as sink:  # noqa: PTH123 - a device, not a path
        os.dup2(sink.fileno(), sys.stdout.fileno())
