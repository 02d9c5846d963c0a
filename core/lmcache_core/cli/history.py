"""``lmcachectl health history``: what changed, when and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from lmcache_core.cli.address import cache_at, url_option
from lmcache_core.cli.cache_page import clean, in_path
from lmcache_core.cli.span import span

_MOST = 1000


@click.command()
@click.argument("name", required=False)
@url_option
@click.option("--limit", type=click.IntRange(1, _MOST), default=50, show_default=True, help="How many, the last ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def history(name: str | None, url: str | None, limit: int, as_json: bool) -> int:
    """Print what changed, the oldest first; of one check or backend where NAME is given."""
    path = f"/health/history?limit={limit}" + (f"&name={in_path(name)}" if name else "")
    answer = cache_at(url).read(path, {"transitions": list, "total": int})
    for one in answer["transitions"]:
        click.echo(json.dumps(one) if as_json else transition_line(one))
    if not answer["transitions"] and not as_json:
        click.echo("nothing has changed" if name is None else f"nothing has changed for {name!r}")
    return 0


def transition_line(one: Mapping[str, Any]) -> str:
    """Write one change on a line, its time in the local zone."""
    before = f"{clean(one['before'])} -> " if one.get("before") else ""
    lasted = f" after {span(one['lasted_s'])}" if isinstance(one.get("lasted_s"), (int, float)) else ""
    reason = f": {clean(one['reason'])}" if one.get("reason") else ""
    subject = " ".join(text for text in (clean(one.get("kind")), clean(one.get("name"))) if text)
    return f"{local_time(one.get('at_unix_s'))}  {subject}  {before}{clean(one.get('after'))}{lasted}{reason}"


def local_time(unix_s: object) -> str:
    """Write a time of the local zone, with its date unless that is today."""
    if isinstance(unix_s, bool) or not isinstance(unix_s, (int, float)):
        return "-"
    try:
        at = datetime.fromtimestamp(unix_s).astimezone()
    except (OverflowError, ValueError, OSError):
        return "-"
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().astimezone().date() else f"{at:%Y-%m-%d %H:%M:%S}"
