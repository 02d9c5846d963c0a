"""``lmcachectl top``: what a cache server does, live on a terminal, a line at a time elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lmcache_core.cli.cache_page import clean
from lmcache_core.cli.frame import print_frame
from lmcache_core.cli.history import local_time
from lmcache_core.cli.keys import Keys
from lmcache_core.cli.rates import RateMeter
from lmcache_core.cli.server_at import address_options, server_at
from lmcache_core.cli.span import SpanType, span
from lmcache_core.cli.top_text import LINE_HEADER, draw_top, top_line
from lmcache_core.errors import LMCacheError

_QUIT = "q"
_ESCAPE = "\x1b"
_LEAST_INTERVAL_S = 0.1
_HEADER_EVERY = 20
_UNBOUNDED = 1000
"""Lines where no screen bounds them."""


class Page(Protocol):
    """Where a status comes from; `ServerPage` is one."""

    address: str

    def read(self) -> dict[str, Any]:
        """Give the newest status."""


@click.command()
@address_options
@click.option("--interval", type=SpanType(), default="1s", show_default=True, help="How often the server is asked.")
@click.option("--for", "for_s", type=SpanType(), help="End after so long; else q or Ctrl-C ends it.")
@click.option("--once", is_flag=True, help="Print one frame, over one interval, and end.")
def top(address: str | None, config_file: Path | None, interval: float, for_s: float | None, once: bool) -> int:
    """Watch what a cache server does: tokens and bytes a second, hit rate, clients and their blocks.

    On a terminal the view renews itself. Elsewhere, and on a dumb terminal, each interval is a line. A
    server that does not answer is shown as such, and watched on.
    """
    view = View(server_at(address, config_file))
    interval = max(interval, _LEAST_INTERVAL_S)
    if once:
        return _once(view, interval)
    until_s = None if for_s is None else time.monotonic() + for_s
    try:
        if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            _live(view, interval, until_s)
        else:
            _plain(view, interval, until_s)
    except KeyboardInterrupt:
        click.echo()
    return 0


class View:
    """What is known of a server: its last status, the rates up to it, and why there is no newer one.

    Args:
        page: The server.
        clock: Monotonic seconds.
    """

    def __init__(self, page: Page, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = page.address
        self.document: Mapping[str, Any] = {}
        self.meter = RateMeter()
        self.problem = ""
        self._page = page
        self._clock = clock
        self._answered_s = 0.0

    def ask(self) -> None:
        """Ask once; a server that does not answer keeps what it said last."""
        try:
            self.document = self._page.read()
        except LMCacheError as error:
            self.problem = str(error)
            return
        self.problem = ""
        self._answered_s = self._clock()
        self.meter.take(self.document)

    def draw(self, columns: int, lines: int) -> Group:
        """Draw what is known; a server that is gone never looks well."""
        if not self.document:
            return Group(Text(f"○ NO ANSWER from {clean(self.address)}", "bold"), Text(clean(self.problem), "red"))
        note = ""
        if self.problem:
            note = f"no answer for {span(self._clock() - self._answered_s)}; this is what it said last: {self.problem}"
        return draw_top(self.document, self.meter, columns=columns, lines=lines, note=clean(note))


def _once(view: View, interval_s: float) -> int:
    view.ask()
    if not view.problem:
        time.sleep(interval_s)
        view.ask()
    if view.problem:
        raise LMCacheError(view.problem)
    print_frame(lambda columns: view.draw(columns, _UNBOUNDED))
    return 0


def _live(view: View, interval_s: float, until_s: float | None) -> None:
    console = Console(markup=False, highlight=False)
    view.ask()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(view.draw(console.width, console.height), refresh=True)
            if _ends(keys.wait(interval_s)) or (until_s is not None and time.monotonic() >= until_s):
                return
            view.ask()


def _ends(typed: str) -> bool:
    return typed == _ESCAPE or (_QUIT in typed.lower() and not typed.startswith(_ESCAPE))


def _plain(view: View, interval_s: float, until_s: float | None) -> None:
    """Print a line an interval; a server that does not answer is said once."""
    told, lines = "", 0
    view.ask()
    while True:
        if view.problem:
            if view.problem != told:
                click.echo(f"{local_time(time.time())}  NO ANSWER  {view.problem}")
        elif view.meter.history:
            if lines % _HEADER_EVERY == 0:
                click.echo(f"{'time':<8}  {LINE_HEADER}")
            click.echo(f"{local_time(time.time())}  {top_line(view.document, view.meter.now)}")
            lines += 1
        told = view.problem
        sys.stdout.flush()
        if until_s is not None and time.monotonic() + interval_s > until_s:
            return
        time.sleep(interval_s)
        view.ask()
