"""The reference of the command line names every command and every option."""

from pathlib import Path

import click
import pytest

from lmcache_core.cli.main import COMMANDS, lmcachectl

PAGE = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text()


def leaves(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    own = [(path, command)] if command.invoke_without_command else []
    context = click.Context(command)
    subs = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return own + [leaf for name, sub in subs for leaf in leaves(sub, f"{path} {name}")]


@pytest.mark.parametrize("name", COMMANDS)
def test_page_has_each_command_with_its_options(name: str) -> None:
    for path, command in leaves(lmcachectl.get_command(click.Context(lmcachectl), name), name):
        heading = next(
            (line for line in PAGE.splitlines() if line.startswith("#") and line.lstrip("# ").startswith(path)), None
        )
        assert heading is not None, path
        section = PAGE.split(f"{heading}\n")[1].split("\n#")[0]
        options = [option for one in command.params if isinstance(one, click.Option) for option in one.opts]
        assert [option for option in options if f"`{option}" not in section] == []


def test_page_has_each_line_of_help() -> None:
    assert all(f"{name:<9}{text}" in PAGE for name, (_, text) in COMMANDS.items())
