"""One gate, any usual spelling of no (D.16)."""

from __future__ import annotations

import pytest

from lmcache_core.config.usage import UsageOptions
from lmcache_core.contracts.url import StoreURL
from lmcache_core.telemetry.consent import is_usage_tracking_enabled, why_off

ENDPOINT = StoreURL.parse("https://collector.example")


@pytest.mark.parametrize(
    "text", ["false", "False", "FALSE", "0", "no", "off", "n", "f", " No ", "nope", "2", "disabled"]
)
def test_a_no_in_any_spelling_and_anything_unclear_forbids(text: str) -> None:
    assert is_usage_tracking_enabled({"LMCACHE_TRACK_USAGE": text}) is False


@pytest.mark.parametrize("text", ["1", "true", "yes", "anything", "no", "off"])
def test_do_not_track_forbids_with_any_value(text: str) -> None:
    assert is_usage_tracking_enabled({"DO_NOT_TRACK": text, "LMCACHE_TRACK_USAGE": "true"}) is False


@pytest.mark.parametrize("text", ["", "0", "false", " False "])
def test_do_not_track_is_not_set_with_these(text: str) -> None:
    assert is_usage_tracking_enabled({"DO_NOT_TRACK": text}) is True


@pytest.mark.parametrize("environ", [{}, {"LMCACHE_TRACK_USAGE": ""}, {"LMCACHE_TRACK_USAGE": "Yes"}])
def test_nothing_said_and_a_yes_allow(environ: dict[str, str]) -> None:
    assert is_usage_tracking_enabled(environ) is True


def test_the_processs_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    assert is_usage_tracking_enabled() is False


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (UsageOptions(endpoint=ENDPOINT), ""),
        (UsageOptions(), "no usage_endpoint is configured, and there is no other place to send to"),
        (UsageOptions(endpoint=ENDPOINT, track_usage=False), "track_usage is not true"),
        (UsageOptions(endpoint=ENDPOINT, switches={"DO_NOT_TRACK": "1"}), "DO_NOT_TRACK is set to '1'"),
        (UsageOptions(endpoint=ENDPOINT, switches={"LMCACHE_TRACK_USAGE": "0"}), "LMCACHE_TRACK_USAGE is set to '0'"),
    ],
)
def test_the_reason_is_told(options: UsageOptions, reason: str) -> None:
    assert why_off(options) == reason
