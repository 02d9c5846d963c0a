"""`lmcachectl usage` shows the bytes and sends none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmcache_core.cli.main import main
from lmcache_core.telemetry.lastfile import write_last
from lmcache_core.telemetry.outbox import LastResult


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "DO_NOT_TRACK",
        "LMCACHE_TRACK_USAGE",
        "LMCACHE_USAGE_ENDPOINT",
        "LMCACHE_USAGE_TRACK_URL",
        "LMCACHE_CONFIG_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def requests(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The printed requests: address and body."""
    parts = [part.strip() for part in text.split("POST ") if part.strip()]
    return [(part.splitlines()[0], json.loads(part.splitlines()[-1])) for part in parts]


def test_status_of_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "status"]) == 0
    assert capsys.readouterr().out == (
        "usage telemetry is off: no usage_endpoint is configured, and there is no other place to send to\n"
        "last message: none known\n"
    )


def test_status_with_a_collector(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("LMCACHE_USAGE_ENDPOINT", "https://me:hunter2@collector.example/x")
    write_last(home / "lmcache", LastResult(0.0, "EnvMessage", "http_503"), "https://collector.example/x")
    main(["usage", "status"])
    on, where, last = capsys.readouterr().out.splitlines()

    assert on == "usage telemetry is on: usage_endpoint is set: env LMCACHE_USAGE_ENDPOINT"
    assert where == "every 600 s to https://collector.example/x"
    assert last.endswith("EnvMessage to https://collector.example/x did not arrive: http_503")


def test_status_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMCACHE_USAGE_ENDPOINT", "https://collector.example")
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    main(["usage", "status", "--json"])

    assert json.loads(capsys.readouterr().out) == {
        "on": False,
        "reason": "DO_NOT_TRACK is set to '1'",
        "endpoint": "https://collector.example",
        "interval_s": 600.0,
        "last": None,
    }


def test_preview_says_that_nothing_is_sent_and_shows_what_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "preview"]) == 0
    shown = capsys.readouterr()

    assert shown.err.splitlines() == [
        "nothing is sent: no usage_endpoint is configured, and there is no other place to send to",
        "machine_id is made when the first message is sent",
    ]
    assert [(where, body["message_type"]) for where, body in requests(shown.out)] == [
        ("http://collector.example/context", "EnvMessage"),
        ("http://collector.example/context", "EngineMessage"),
        ("http://collector.example/context", "MetadataMessage"),
        ("http://collector.example/cache-usage", "ContinuousContextMessage"),
        ("http://collector.example/cache-lifespan", "CacheLifespanMessage"),
        ("http://collector.example/l2-usage", "L2UsageMessage"),
        ("http://collector.example/l1-usage", "L1UsageMessage"),
    ]


def test_preview_goes_to_the_collector_and_shows_no_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMCACHE_USAGE_ENDPOINT", "https://me:hunter2@collector.example/x")
    monkeypatch.setenv("LMCACHE_REMOTE_URL", "redis://user:hunter3@cache-1.internal:6379")
    main(["usage", "preview"])
    shown = capsys.readouterr()
    found = {body["message_type"]: body for _, body in requests(shown.out)}

    assert requests(shown.out)[0][0] == "https://collector.example/x/context"
    assert found["EngineMessage"]["remote_schemes"] == "redis"
    assert found["L2ConnectorUsageMessage"]["l2_name"] == "redis"
    assert not any(secret in shown.out + shown.err for secret in ("hunter2", "hunter3", "cache-1"))


def test_preview_writes_nothing(home: Path) -> None:
    main(["usage", "preview"])
    assert list(home.iterdir()) == []


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    main(["usage", "schema"])
    found = json.loads(capsys.readouterr().out)

    assert found["schema_version"] == 1
    assert found["messages"]["L1UsageMessage"]["fields"]["bytes_used"] == {
        "type": "int",
        "meaning": "Bytes in use; -1 when they could not be read.",
    }


def test_schema_as_the_reference_page(capsys: pytest.CaptureFixture[str]) -> None:
    main(["usage", "schema", "--markdown"])
    page = Path(__file__).parents[3] / "docs/reference/usage-messages.md"

    assert capsys.readouterr().out == page.read_text()
