"""``lmcachectl health why``: which check, which evidence, which rule, since when, and what happens next."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from lmcache_core.cli.address import cache_at, url_option
from lmcache_core.cli.cache_page import clean, in_path
from lmcache_core.cli.span import span

_LABEL = 10


@click.command()
@click.argument("backend", required=False)
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def why(backend: str | None, url: str | None, as_json: bool) -> int:
    """Say why the cache, or one BACKEND, is as it is, and what happens next.

    Ends with 0 when the cache is healthy, else with 1.
    """
    path = "/health/why" + (f"?backend={in_path(backend)}" if backend else "")
    answer = cache_at(url).read(path, {"healthy": bool, "explanations": list})
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in explain_lines(answer, width):
            click.echo(line)
    return 0 if answer["healthy"] else 1


def explain_lines(answer: Mapping[str, Any], width: int | None = None) -> Iterator[str]:
    """Write an explanation for people.

    Args:
        answer: The page's JSON.
        width: Of the terminal, to wrap for; None leaves lines as long as they are.
    """
    for place, one in enumerate(each for each in answer["explanations"] if isinstance(each, dict)):
        if place:
            yield ""
        name = clean(one.get("name")) or "cache"
        gets = f"gets {clean(one.get('traffic'))}" if one.get("name") else clean(one.get("traffic"))
        address = f" ({clean(one.get('url'))})" if one.get("url") else ""
        yield f"{name}{address}: {clean(one.get('state')).upper()}, {gets}"
        for ground in one.get("grounds", ()):
            yield from _ground_lines(ground, width)


def _ground_lines(ground: Mapping[str, Any], width: int | None) -> Iterator[str]:
    since = "" if ground.get("since_s") is None else f" for {span(ground['since_s'])}"
    yield f"  {clean(ground.get('subject'))}: {clean(ground.get('state'))}{since}"
    for place, text in enumerate(ground.get("evidence", ())):
        yield from _labelled("evidence" if not place else "", clean(text), width)
    if ground.get("rule"):
        yield from _labelled("rule", clean(ground["rule"]), width)
    for place, step in enumerate(ground.get("next", ())):
        when = step.get("in_s")
        text = clean(step.get("what")) + ("" if when is None else " now" if when <= 0 else f" in {span(when)}")
        yield from _labelled("next" if not place else "", text, width)


def _labelled(label: str, text: str, width: int | None) -> Iterator[str]:
    start = f"    {label:<{_LABEL}}"
    if width is None or len(start) + len(text) <= width:
        yield start + text
        return
    yield from textwrap.wrap(
        text,
        max(width, 2 * len(start)),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
    )
