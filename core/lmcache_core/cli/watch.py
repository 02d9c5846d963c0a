"""``lmcachectl health watch``: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

import click
from rich.live import Live

from lmcache_core.cli.address import cache_at, url_option
from lmcache_core.cli.cache_page import clean
from lmcache_core.cli.history import local_time, transition_line
from lmcache_core.cli.screen import draw
from lmcache_core.cli.span import SpanType, span
from lmcache_core.cli.watcher import Seen, Watcher

_FRAME_S = 0.25


@click.command()
@url_option
@click.option("--interval", type=SpanType(), default="2s", show_default=True, help="How often the cache is asked.")
@click.option("--for", "for_s", type=SpanType(), help="End after so long; else Ctrl-C ends it.")
def watch(url: str | None, interval: float, for_s: float | None) -> int:
    """Watch a cache's health until Ctrl-C.

    On a terminal the view renews itself. Elsewhere each change is a line. A cache that does not
    answer is shown as such, and watched on.
    """
    watcher = Watcher(cache_at(url))
    until_s = None if for_s is None else time.monotonic() + for_s
    try:
        if sys.stdout.isatty():
            _live(watcher, interval, until_s)
        else:
            _plain(watcher, interval, until_s)
    except KeyboardInterrupt:
        click.echo()
    return 0


def _live(watcher: Watcher, interval_s: float, until_s: float | None) -> None:
    with Live(draw(watcher), screen=True, auto_refresh=False) as live:
        ask_s = 0.0
        while until_s is None or time.monotonic() < until_s:
            if time.monotonic() >= ask_s:
                watcher.ask()
                ask_s = time.monotonic() + interval_s
            live.update(draw(watcher), refresh=True)
            time.sleep(_FRAME_S)


def _plain(watcher: Watcher, interval_s: float, until_s: float | None) -> None:
    lines = Lines(watcher)
    while True:
        for line in lines.news():
            click.echo(line)
        sys.stdout.flush()
        if until_s is not None and time.monotonic() + interval_s > until_s:
            return
        time.sleep(interval_s)


class Lines:
    """Turns what a watcher sees into lines, each thing once."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._number: int | None = None
        self._problem: str | None = None

    def news(self) -> list[str]:
        """Ask once and give what is new."""
        seen = self._watcher.ask()
        if seen.problem:
            known, self._problem = self._problem, seen.problem
            return [] if known == seen.problem else [f"{local_time(time.time())}  NO ANSWER  {seen.problem}"]
        first = self._number is None or self._problem is not None
        self._problem = None
        lines = [self._verdict(seen)] if first else []
        number = max((one["number"] for one in seen.transitions if isinstance(one.get("number"), int)), default=0)
        if self._number is not None and number >= self._number:
            lines += [transition_line(one) for one in seen.transitions if one.get("number", 0) > self._number]
        self._number = number
        return lines

    def _verdict(self, seen: Seen) -> str:
        reason = clean(seen.why.get("reason"))
        state = clean(seen.why.get("state")).upper()
        since = span(seen.why.get("since_s"))
        return f"{local_time(time.time())}  {state} for {since}, says {self._watcher.address}" + (
            f": {reason}" if reason else ""
        )
