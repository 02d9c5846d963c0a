"""Options that every sub-command of ``lmcachectl health`` has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lmcache_core.cli.cache_page import DEFAULT_URL, CachePage

F = TypeVar("F", bound=Callable[..., Any])


def url_option(command: F) -> F:
    """Let a command name the cache: ``--url`` of its own, else that of the group."""
    return click.option("--url", help=f"Address of the cache's HTTP pages; {DEFAULT_URL} where left out.")(command)


def token_option(command: F) -> F:
    """Let a command that changes something name the token's file."""
    return click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="File with the token; else the variable LMCACHE_INTERNAL_API_SERVER_TOKEN, else the file that a cache of "
        "this user leaves.",
    )(command)


def cache_at(url: str | None) -> CachePage:
    """Give the pages that the options name."""
    context = click.get_current_context(silent=True)
    above = context.parent if context is not None else None
    default = above.params.get("url", DEFAULT_URL) if above is not None else DEFAULT_URL
    return CachePage(url or str(default))
