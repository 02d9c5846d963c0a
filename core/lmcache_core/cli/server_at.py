"""Options by which a command names a cache server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lmcache_core.cli.target import import_target
from lmcache_core.config.judge import judge
from lmcache_core.config.sources import read_sources
from lmcache_core.errors import ConfigError

if TYPE_CHECKING:  # needs the optional extra server
    from lmcache_core.cli.server_page import ServerPage

F = TypeVar("F", bound=Callable[..., Any])

_PAGE = "lmcache_core.cli.server_page:ServerPage"
_EXTRA = frozenset({"msgspec", "zmq"})
_INSTALL = "pip install 'lmcache-core[server]'"


def address_options(command: F) -> F:
    """Let a command name the server: ``--address``, or ``--config`` with a file that says where it is."""
    config = click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="TOML file whose server_address counts; else LMCACHE_CONFIG_FILE, else ./lmcache.toml.",
    )
    address = click.option(
        "--address",
        help="Address of the server, such as ipc:///run/lmcache-core/server.sock; else the configured "
        "server_address, else the socket in this user's runtime directory.",
    )
    return address(config(command))


def server_at(address: str | None, config_file: Path | None) -> ServerPage:
    """Give the server that the options name. What is wrong elsewhere in a configuration does not matter here.

    Raises:
        ConfigError: The address is none, the file cannot be read, or the extra ``server`` is not installed.
    """
    try:
        page: Any = import_target(_PAGE)
    except ImportError as error:
        if error.name not in _EXTRA:
            raise
        raise ConfigError(f"a cache server is asked through {error.name!r}; run: {_INSTALL}") from error
    made: ServerPage = page(_configured(config_file) if address is None else address)
    return made


def _configured(config_file: Path | None) -> str:
    sources = read_sources(config_file=config_file, environ=os.environ)
    verdict = judge(
        document=sources.document, overrides=sources.overrides, environ=sources.environ, owners=(), known=None
    )
    return verdict.values.server_address or ""
