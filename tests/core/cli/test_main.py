"""The root command: help, versions, errors and exit codes."""

import logging
import subprocess
import sys

import click
import pytest

from lmcache_core.cli import main as root
from lmcache_core.cli.main import COMMANDS, main
from lmcache_core.errors import BackendError, ConfigError, PluginError
from lmcache_core.registry.claims import CORE_COMMANDS

RUN = "import sys; from lmcache_core.cli.main import main; sys.exit(main())"


def run_process(*args: str, code: str = RUN, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.fixture
def command_that(monkeypatch):
    """Make sub-command ``probe`` do something."""

    def put(action) -> None:
        real = root.import_target
        monkeypatch.setitem(COMMANDS, "probe", ("probe:probe", "Do it."))
        command = click.command("probe")(action)
        monkeypatch.setattr(root, "import_target", lambda target: command if target == "probe:probe" else real(target))

    return put


def raising(error: BaseException):
    def action() -> None:
        raise error

    return action


def test_help_names_every_command(capsys) -> None:
    assert main(["--help"]) == 0

    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert "Plugins may add commands; see: lmcachectl plugins list" in shown


def test_help_imports_no_sub_command() -> None:
    code = (
        "import sys; from lmcache_core.cli.main import main; main(['--help']);"
        "print(sorted(name for name in sys.modules if name.startswith('lmcache_core.cli.')), 'pydantic' in sys.modules)"
    )

    assert run_process(code=code).stdout.splitlines()[-1] == (
        "['lmcache_core.cli.logs', 'lmcache_core.cli.main', 'lmcache_core.cli.target'] False"
    )


def test_no_arguments_shows_help(capsys) -> None:
    assert main([]) in {0, 2}
    shown = capsys.readouterr()
    assert "Commands:" in shown.out + shown.err


def test_version(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "lmcachectl, version 0.1.0\n"


def test_commands_are_those_no_plugin_can_take() -> None:
    assert set(COMMANDS) == CORE_COMMANDS


def test_unknown_command_names_the_nearest(capsys) -> None:
    assert main(["plugin"]) == 2
    assert capsys.readouterr().err == (
        "error: no command 'plugin', built in or of a plugin; did you mean 'plugins'?\nsee: lmcachectl --help\n"
    )


def test_unknown_command_with_nothing_near_names_all(capsys) -> None:
    assert main(["zzz"]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: no command 'zzz', built in or of a plugin; known are: {', '.join(sorted(COMMANDS))}\n"
    )


def test_unknown_option(capsys) -> None:
    assert main(["--colour"]) == 2
    assert capsys.readouterr().err == "error: no such option '--colour'\nsee: lmcachectl --help\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BackendError("the store is gone"), 1, "error: the store is gone\n"),
        (ConfigError("a: wrong", "b: wrong"), 2, "error: a: wrong\nerror: b: wrong\n"),
        (PluginError(plugin="x", origin="y 1", reason="no"), 3, "error: plugin 'x' (y 1): no\n"),
        (KeyError("k"), 1, "error: internal error: KeyError: 'k'; run lmcachectl --debug to see where\n"),
        (click.UsageError("Wrong use."), 2, "error: wrong use\n"),
        (SystemExit("stopped"), 1, "error: stopped\n"),
    ],
)
def test_error_is_one_sentence_and_a_code(error, code: int, text: str, command_that, capsys) -> None:
    command_that(raising(error))

    assert main(["probe"]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err.replace("see: lmcachectl probe --help\n", "")) == ("", text)


def test_debug_shows_the_traceback(command_that, capsys) -> None:
    command_that(raising(BackendError("the store is gone")))

    assert main(["--debug", "probe"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n")
    assert shown.endswith("error: the store is gone\n")


@pytest.mark.parametrize(("given", "code"), [(None, 0), (5, 5), ("text", 0)])
def test_number_that_a_command_returns_is_the_exit_code(given: object, code: int, command_that) -> None:
    command_that(lambda: given)

    assert main(["probe"]) == code


@pytest.mark.parametrize(("error", "code"), [(SystemExit(4), 4), (SystemExit(), 0), (KeyboardInterrupt(), 130)])
def test_command_may_exit(error: BaseException, code: int, command_that) -> None:
    command_that(raising(error))

    assert main(["probe"]) == code


def test_context_exit_is_the_exit_code(command_that) -> None:
    command_that(lambda: click.get_current_context().exit(7))

    assert main(["probe"]) == 7


def test_interrupt_is_130_and_quiet(command_that, capsys) -> None:
    command_that(raising(KeyboardInterrupt()))

    assert main(["probe"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_closed_pipe_is_quiet() -> None:
    closed = "import os; read, write = os.pipe(); os.close(read); os.dup2(write, 1)"

    done = run_process("plugins", "list", code=f"{closed}; {RUN}")

    assert (done.returncode, done.stderr) == (1, "")


def test_warnings_of_the_log_stay_quiet(command_that, capsys) -> None:
    def warn() -> None:
        logging.getLogger("lmcache_core.x").warning("careful")

    command_that(warn)

    assert main(["probe"]) == 0
    assert capsys.readouterr().err == ""


def test_errors_of_the_log_are_shown_without_traceback(command_that, capsys) -> None:
    def fail() -> None:
        try:
            {}["k"]
        except KeyError:
            logging.getLogger("lmcache_core.x").exception("it failed")

    command_that(fail)

    assert main(["probe"]) == 0
    assert capsys.readouterr().err == "ERROR: it failed\n"


def test_log_handlers_are_as_before(command_that) -> None:
    before = (list(logging.getLogger().handlers), logging.getLogger().level)
    command_that(lambda: None)

    main(["--debug", "probe"])

    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_command_of_a_plugin(put_on_path, capsys) -> None:
    put_on_path("good")

    assert main(["good"]) == 0
    assert capsys.readouterr().out == "hello from acme-good\n"


def test_command_of_a_disabled_plugin_is_unknown(put_on_path, monkeypatch, capsys) -> None:
    put_on_path("good")
    monkeypatch.setenv("LMCACHE_PLUGINS__DISABLED", '["good"]')

    assert main(["good"]) == 2
    assert capsys.readouterr().err.startswith("error: no command 'good'")


def test_command_that_cannot_be_imported_is_its_plugins_fault(put_on_path, capsys) -> None:
    put_on_path("commands")

    assert main(["absent"]) == 3
    assert capsys.readouterr().err == (
        "error: plugin 'commands' (acme-commands 1.0): command 'absent' at acme_commands_absent:run "
        "raised ModuleNotFoundError: No module named 'acme_commands_absent'\n"
    )


def test_command_that_is_none_is_its_plugins_fault(put_on_path, capsys) -> None:
    put_on_path("commands")

    assert main(["number"]) == 3
    assert capsys.readouterr().err == (
        "error: plugin 'commands' (acme-commands 1.0): command 'number' at acme_commands:NUMBER "
        "is an object of type 'int', no click command\n"
    )
