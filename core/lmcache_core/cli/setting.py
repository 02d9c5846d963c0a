"""``--set key=value``: one key of the configuration on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import tomli

from lmcache_core.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def set_option(command: F) -> F:
    """Let a command take keys that win over file and variables."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A key of the configuration, such as extra_config.ping_interval=10; as often as needed. Wins over file "
        "and variables. VALUE is written as in TOML; what is no TOML is text.",
    )(command)


def read_settings(settings: Sequence[str]) -> dict[str, object]:
    """Read what `set_option` took.

    Raises:
        ConfigError: One has no key, or names a key that another one names too; says each.
    """
    found: dict[str, object] = {}
    problems = []
    for setting in settings:
        key, separator, text = setting.partition("=")
        key = key.strip()
        if not separator or not all(key.split(".")):
            # What is behind a key may be a secret, so only the key is shown.
            problems.append(f"--set: {key!r} is no key with a value; write KEY=VALUE, such as chunk_size=256")
        elif key in found:
            problems.append(f"--set: {key} is given twice; give it once")
        else:
            found[key] = _value(text)
    if problems:
        raise ConfigError(*problems)
    return found


def _value(text: str) -> object:
    try:
        read = tomli.loads(f"value = {text}")
    except tomli.TOMLDecodeError:
        return text
    value = read["value"]
    if len(read) == 1 and isinstance(value, str | int | float | bool | list | dict):
        return value
    return text
