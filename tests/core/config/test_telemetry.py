"""Telemetry never stops a start-up."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmcache_core.config.telemetry import KEY_OF_VARIABLE

GOOD = [
    ("LMCACHE_TRACK_USAGE", "false"),
    ("LMCACHE_TRACK_USAGE", "0"),
    ("LMCACHE_USAGE_TRACK_INTERVAL", "600"),
    ("LMCACHE_USAGE_TRACK_URL", "http://h"),
    ("DO_NOT_TRACK", "anything"),
]


@pytest.mark.parametrize(("name", "text"), GOOD)
def test_good_variables_say_nothing(judge, name: str, text: str) -> None:
    assert judge(None, {name: text}).warnings == ()


@pytest.mark.parametrize(
    ("name", "text", "warning"),
    [
        ("LMCACHE_TRACK_USAGE", "nope", "LMCACHE_TRACK_USAGE: must be true or false; taken as false, as consent must be clear"),
        ("LMCACHE_USAGE_TRACK_INTERVAL", "10min", "LMCACHE_USAGE_TRACK_INTERVAL: must be a number of seconds above 0; the default is used"),
        ("LMCACHE_USAGE_TRACK_INTERVAL", "-1", "LMCACHE_USAGE_TRACK_INTERVAL: must be a number of seconds above 0; the default is used"),
        ("LMCACHE_USAGE_TRACK_INTERVAL", "nan", "LMCACHE_USAGE_TRACK_INTERVAL: must be a number of seconds above 0; the default is used"),
        ("LMCACHE_USAGE_TRACK_URL", "", "LMCACHE_USAGE_TRACK_URL: must be an address such as https://collector.example; nothing is sent there"),
        ("LMCACHE_USAGE_INTERVAL", "1", "LMCACHE_USAGE_INTERVAL: unknown telemetry variable, ignored; did you mean LMCACHE_USAGE_TRACK_INTERVAL?"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_a_warning(judge, name: str, text: str, warning: str) -> None:
    assert judge(None, {name: text}).warnings == (warning,)


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("track_usage = false\nusage_track_interval = 5.5\nusage_endpoint = 'http://h'", ()),
        ("track_usage = 3", ("lmcache.toml:1: track_usage: must be true or false; taken as false, as consent must be clear",)),
        ("usage_track_interval = [1]", ("lmcache.toml:1: usage_track_interval: must be a number of seconds above 0; the default is used",)),
        ("usage_endpont = 'x'", ("lmcache.toml:1: usage_endpont: unknown telemetry key, ignored; did you mean 'usage_endpoint'?",)),
    ],
)  # fmt: skip
def test_keys_of_the_file(judge, text: str, warnings: tuple[str, ...]) -> None:
    assert judge(text).warnings == warnings


@given(
    st.sampled_from(sorted(KEY_OF_VARIABLE)),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_no_value_stops_a_start_up(judge, name: str, text: str) -> None:
    judge(None, {name: text})
