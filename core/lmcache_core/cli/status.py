"""``lmcachectl status``: how a cache server fares, on one screen."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lmcache_core.cli.frame import print_frame
from lmcache_core.cli.server_at import address_options, server_at
from lmcache_core.cli.status_text import draw_status, table_of


@click.command()
@address_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as JSON.")
def status(address: str | None, config_file: Path | None, as_json: bool) -> int:
    """Print how a cache server fares: its verdict, tiers, memory, clients and tenants.

    Ends with 0 when it is healthy and with 1 when it is not, or does not answer.
    """
    document = server_at(address, config_file).read()
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        print_frame(lambda _: draw_status(document))
    return 0 if table_of(document, "health").get("healthy") is True else 1
