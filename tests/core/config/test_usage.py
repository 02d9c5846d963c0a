"""The telemetry keys as values: three sources, malformed ones replaced, a "no" from anywhere."""

from __future__ import annotations

import pytest

from lmcache_core.config.origin import Layer
from lmcache_core.config.usage import UsageOptions, read_usage


def read(file: dict | None = None, environ: dict | None = None, over: dict | None = None) -> UsageOptions:
    document = Layer("file", file or {}, "lmcache.toml", {("usage_endpoint",): 3})
    return read_usage(document=document, environ=environ or {}, overrides=Layer("command line", over or {}))


def test_nothing_said_sends_nothing() -> None:
    assert read() == UsageOptions(endpoint=None, interval_s=600.0, track_usage=True)


@pytest.mark.parametrize(
    ("file", "environ", "over", "endpoint", "source"),
    [
        ({"usage_endpoint": "http://f"}, {}, {}, "http://f", "lmcache.toml:3"),
        ({"usage_endpoint": "http://f"}, {"LMCACHE_USAGE_ENDPOINT": "https://e:1/x"}, {}, "https://e:1/x", "env LMCACHE_USAGE_ENDPOINT"),
        ({"usage_endpoint": "http://f"}, {"LMCACHE_USAGE_TRACK_URL": "http://t"}, {}, "http://t", "env LMCACHE_USAGE_TRACK_URL"),
        ({}, {"LMCACHE_USAGE_ENDPOINT": "http://e"}, {"usage_endpoint": "http://c"}, "http://c", "command line"),
        ({"usage_endpoint": "http://f"}, {"LMCACHE_USAGE_ENDPOINT": "nonsense"}, {}, "http://f", "lmcache.toml:3"),
    ],
)  # fmt: skip
def test_where_the_endpoint_comes_from(file, environ, over, endpoint: str, source: str) -> None:
    options = read(file, environ, over)
    assert (str(options.endpoint), options.endpoint_source) == (endpoint, source)


@pytest.mark.parametrize("text", ["", "collector", "ftp://h", "redis://h:1", "http://", "http://h:99999", 3, None])
def test_what_is_no_address_of_a_collector_is_none(text: object) -> None:
    assert read({"usage_endpoint": text}).endpoint is None


def test_an_endpoints_credentials_do_not_show() -> None:
    options = read({"usage_endpoint": "https://user:hunter2@h"})
    assert "hunter2" not in repr(options) + str(options.endpoint)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60.0), (5, 5.0), ("0.2", 1.0), ("10min", 600.0), ("nan", 600.0), ("-1", 600.0), (True, 600.0), ("", 600.0)],
)
def test_interval(text: object, seconds: float) -> None:
    assert read({"usage_track_interval": text}).interval_s == seconds


def test_the_environments_interval_wins_over_the_files() -> None:
    assert read({"usage_track_interval": 7}, {"LMCACHE_USAGE_TRACK_INTERVAL": "9"}).interval_s == 9.0


@pytest.mark.parametrize("value", [False, "no", "nope", 0, None, ""])
def test_a_no_of_the_file_counts_whatever_the_command_line_says(value: object) -> None:
    assert read({"track_usage": value}, over={"track_usage": True}).track_usage is False


def test_only_the_switches_are_kept_of_the_environment() -> None:
    environ = {"LMCACHE_TRACK_USAGE": "yes", "DO_NOT_TRACK": "1", "HOME": "/home/me"}
    assert dict(read(environ=environ).switches) == {"LMCACHE_TRACK_USAGE": "yes", "DO_NOT_TRACK": "1"}


@pytest.mark.parametrize(
    ("file", "environ", "over", "rows"),
    [
        (
            {},
            {},
            {},
            [
                ("track_usage", True, "default"),
                ("usage_endpoint", None, "default"),
                ("usage_track_interval", 600.0, "default"),
            ],
        ),
        (
            {"usage_endpoint": "https://user:hunter2@h/x?key=hunter2", "usage_track_interval": 7},
            {"LMCACHE_USAGE_TRACK_INTERVAL": "9"},
            {"track_usage": True},
            [
                ("track_usage", True, "command line"),
                ("usage_endpoint", "https://h/x", "lmcache.toml:3"),
                ("usage_track_interval", 9.0, "env LMCACHE_USAGE_TRACK_INTERVAL"),
            ],
        ),
    ],
)
def test_rows_tell_value_and_source(file: dict, environ: dict, over: dict, rows: list) -> None:
    assert list(read(file, environ, over).rows()) == rows


@pytest.mark.parametrize(
    ("file", "environ", "source"),
    [
        ({"track_usage": True}, {"DO_NOT_TRACK": "1"}, "env DO_NOT_TRACK"),
        ({"track_usage": True}, {"LMCACHE_TRACK_USAGE": "no"}, "env LMCACHE_TRACK_USAGE"),
        ({"track_usage": False}, {"LMCACHE_TRACK_USAGE": "yes"}, "lmcache.toml"),
    ],
)
def test_the_row_names_who_says_no(file: dict, environ: dict, source: str) -> None:
    consent = read(file, environ).rows()[0]

    assert consent[1:] == (False, source)
