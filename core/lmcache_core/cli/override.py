"""``lmcachectl health override``, ``drain`` and ``overrides``: leave a store out for a while, by hand."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lmcache_core.cli.address import cache_at, token_option, url_option
from lmcache_core.cli.cache_page import clean, in_path
from lmcache_core.cli.history import local_time
from lmcache_core.cli.span import SpanType, span

_PATH = "/health/overrides"
_HEADER = ("backend", "leaves out", "owner", "left", "until", "reason")
_OWNER = "Who answers for it; your login name where left out."


@click.command()
@click.argument("backend")
@click.option("--bypass", is_flag=True, help="Leave the store out.")
@click.option("--remove", is_flag=True, help="End the owner's override.")
@click.option("--owner", help=_OWNER)
@click.option("--reason", help="One line for those who find it.")
@click.option(
    "--ttl", type=SpanType(), default="1h", show_default=True, help="When it ends by itself: 90s, 30m, 2h, 1d."
)
@click.option("--reads-only", is_flag=True, help="Leave it out of reads, not of writes.")
@click.option("--writes-only", is_flag=True, help="Leave it out of writes, not of reads.")
@url_option
@token_option
def override(
    *,
    backend: str,
    bypass: bool,
    remove: bool,
    owner: str | None,
    reason: str | None,
    ttl: float,
    reads_only: bool,
    writes_only: bool,
    url: str | None,
    token_file: Path | None,
) -> int:
    """Leave BACKEND out until the time is over, whatever the monitor thinks of it; or end that."""
    if bypass == remove:
        raise click.UsageError("say what to do: --bypass or --remove")
    if reads_only and writes_only:
        raise click.UsageError("--reads-only and --writes-only exclude each other; leave both away for both")
    cache = cache_at(url)
    me = _login()
    who = owner or me
    if remove:
        path = f"{_PATH}/{in_path(backend)}/{in_path(who)}?by={in_path(me)}"
        cache.change("DELETE", path, None, cache.token(token_file))
        click.echo(f"the override of {backend} by operator:{who} has ended")
        return 0
    if not reason:
        raise click.UsageError("--reason is needed: one line for those who find the override")
    order = {"backend": backend, "owner": who, "reason": reason, "ttl_s": ttl, "by": me}
    order |= {"reads": not writes_only, "writes": not reads_only}
    _tell(cache.change("POST", _PATH, order, cache.token(token_file)))
    return 0


@click.command()
@click.argument("backend")
@click.option("--owner", help=_OWNER)
@click.option("--reason", required=True, help="One line for those who find it.")
@click.option(
    "--ttl", type=SpanType(), default="1h", show_default=True, help="When it ends by itself: 90s, 30m, 2h, 1d."
)
@click.option("--timeout", type=SpanType(), default="30s", show_default=True, help="Longest to wait for the queue.")
@url_option
@token_option
def drain(
    *,
    backend: str,
    owner: str | None,
    reason: str,
    ttl: float,
    timeout: float,
    url: str | None,
    token_file: Path | None,
) -> int:
    """Take no new chunk for BACKEND, write those that wait, then leave it out.

    Ends with 1 when the queue was not empty in time; the store is left out all the same.
    """
    cache = cache_at(url)
    me = _login()
    order = {"backend": backend, "owner": owner or me, "reason": reason, "ttl_s": ttl, "by": me}
    order |= {"drain": True, "timeout_s": timeout}
    answer = cache.change("POST", _PATH, order, cache.token(token_file), patience_s=timeout)
    flushed = answer.get("flushed") is True
    click.echo(
        f"all chunks for {backend} were written"
        if flushed
        else f"chunks for {backend} were still waiting after {span(timeout)}; they are lost and counted"
    )
    _tell(answer)
    return 0 if flushed else 1


@click.command()
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def overrides(url: str | None, as_json: bool) -> int:
    """List the overrides in force."""
    answer = cache_at(url).read(_PATH, {"overrides": list, "persistent": bool})
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return 0
    rows = [_HEADER, *(_row(one) for one in answer["overrides"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    if len(rows) == 1:
        click.echo("no override is in force")
    else:
        for row in rows:
            click.echo("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
    if not answer["persistent"]:
        click.echo("overrides of this cache end with its process, as it has no health_state_dir that it can use")
    return 0


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid-{os.getuid()}"


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    left_s = one.get("left_s")
    return (
        clean(one.get("backend")),
        _sides(one),
        clean(one.get("owner")),
        span(left_s),
        local_time(one.get("expires_unix_s")),
        clean(one.get("reason")),
    )


def _sides(one: Mapping[str, Any]) -> str:
    if one.get("reads") and one.get("writes"):
        return "reads and writes"
    return "reads" if one.get("reads") else "writes"


def _tell(answer: Mapping[str, Any]) -> None:
    one = answer.get("override")
    if isinstance(one, dict):
        click.echo(
            f"{clean(one.get('backend'))} is left out of {_sides(one)} until {local_time(one.get('expires_unix_s'))} "
            f"({span(one.get('left_s'))}), operator:{clean(one.get('owner'))}: {clean(one.get('reason'))}"
        )
    for note in answer.get("notes", ()):
        click.echo(f"note: {clean(note)}", err=True)
