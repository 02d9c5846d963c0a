"""``lmcachectl health``: the verdict of a running cache, for people."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import click

from lmcache_core.contracts.url import StoreURL
from lmcache_core.errors import ConfigError, LMCacheError

_TIMEOUT_S = 2.0
_MOST_BYTES = 1 << 20
_HEADER = ("check", "state", "since", "age", "next run", "policy", "reason")
_ENABLE = "start the cache with internal_api_server_enabled = true, or name its address with --url"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


@click.command()
@click.option("--url", default="http://127.0.0.1:6999", show_default=True, help="Address of the cache's HTTP pages.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def health(url: str, as_json: bool) -> int:
    """Print the health verdict of a running cache.

    Ends with 0 when it is healthy and with 1 when it is not, or does not answer.
    """
    page = f"{_base(url)}/health"
    report = _fetch(page)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        for line in _lines(report, page):
            click.echo(line)
    return 0 if report.get("healthy") is True else 1


def _base(url: str) -> str:
    try:
        address = StoreURL.parse(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise ConfigError(f"--url: {error}") from None
    if address.scheme not in {"http", "https"} or not address.host:
        raise ConfigError(f"--url: {address} is no HTTP address; write http://host:port, such as http://127.0.0.1:6999")
    return str(address).rstrip("/")


def _fetch(page: str) -> dict[str, Any]:
    # Never through a proxy: the pages are on a loopback or private address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(page, timeout=_TIMEOUT_S) as answer:
            return _read(answer.read(_MOST_BYTES), page)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return _read(error.read(_MOST_BYTES), page)
        raise LMCacheError(f"{page} answers {error.code} and is no cache's health page; {_ENABLE}") from None
    except TimeoutError:
        raise LMCacheError(f"no answer from {page} within {_TIMEOUT_S:g} s; {_ENABLE}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise LMCacheError(f"no answer from {page} within {_TIMEOUT_S:g} s; {_ENABLE}") from None
        reason = getattr(error.reason, "strerror", None) or str(error.reason)
        raise LMCacheError(f"no cache answers at {page}: {reason.lower()}; {_ENABLE}") from None
    except (OSError, http.client.HTTPException) as error:
        raise LMCacheError(f"no cache answers at {page}: {type(error).__name__}; {_ENABLE}") from None


def _read(body: bytes, page: str) -> dict[str, Any]:
    try:
        report = json.loads(body)
    except ValueError:
        report = None
    if not isinstance(report, dict) or "healthy" not in report or not isinstance(report.get("checks"), list):
        raise LMCacheError(f"{page} is no cache's health page; {_ENABLE}")
    return report


def _lines(report: Mapping[str, Any], page: str) -> list[str]:
    state = _text(report.get("state")).upper()
    reason = _text(report.get("reason"))
    lines = [f"{state} for {_span(report.get('since_s'))}, says {page}{f': {reason}' if reason else ''}"]
    rows = [_row(check) for check in report["checks"] if isinstance(check, dict)]
    if rows:
        lines += ["", *_table([_HEADER, *rows])]
    for title, key in (("bypassed", "bypassed"), ("did not load", "plugins_failed")):
        found = report.get(key)
        if isinstance(found, dict) and found:
            lines += ["", *(f"{title}: {_text(name)}: {_said(what)}" for name, what in sorted(found.items()))]
    return lines


def _row(check: Mapping[str, Any]) -> tuple[str, ...]:
    policy = _text(check.get("policy")) + (" (engaged)" if check.get("engaged") is True else "")
    return (
        _text(check.get("name")),
        _text(check.get("state")),
        _span(check.get("since_s")),
        _span(check.get("age_s")),
        _span(check.get("next_run_s")),
        policy,
        _text(check.get("reason")),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER) - 1)]
    return [
        "  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _span(seconds: object) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return "-"
    if seconds < 10:  # noqa: PLR2004 - one digit before the point leaves room for one behind it
        return f"{seconds:.1f} s"
    for unit_s, name in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


def _said(what: object) -> str:
    return ", ".join(map(_text, what)) if isinstance(what, list) else _text(what)


def _text(value: object) -> str:
    """What a server sent must not steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value if value is not None else ""))
