"""``lmcachectl serve``: what it says when it starts, and what keeps it from starting. A running one: tests/system."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.core.cli.server_status import status_document

from lmcache_core.cli.main import main
from lmcache_core.cli.serve_report import report_fields, report_lines
from lmcache_core.config.configuration import Configuration
from lmcache_core.loading import load
from lmcache_core.registry import PluginRecord, PluginState


def record(name: str, distribution: str, state: PluginState = PluginState.LOADED, reason: str = "") -> PluginRecord:
    return PluginRecord(
        name=name,
        distribution=distribution,
        version="1.0",
        builtin=False,
        target="x",
        state=state,
        reason=reason,
    )


PLUGINS = [
    record("redis", "lmcache-core"),
    record("file", "lmcache-core"),
    record("acme", "acme-checks"),
    record("late", "acme-late", PluginState.UNAVAILABLE, "needs 'influx'; run: pip install influx"),
    record("off", "acme-off", PluginState.DISABLED),
]


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    (tmp_path / "lmcache.toml").write_text("chunk_size = 128\n")
    return load(environ={}, third_party=False).configuration


def told(configuration: Configuration, **changed: Any) -> list[str]:
    lines = "\n".join(report_lines({**status_document(), **changed}, configuration, PLUGINS))
    return lines.splitlines()


def test_the_whole_report(configuration: Configuration) -> None:
    assert told(configuration) == [
        "lmcache-core 0.1.0 cache server, pid 4711",
        "config   lmcache.toml",
        "address  ipc:///run/lmcache-core/server.sock",
        "http     http://127.0.0.1:6999",
        "grpc     127.0.0.1:7999",
        "memory   64.0 GiB shared with its clients, in chunks of about 128 tokens",
        "tiers    0 LocalCPUBackend  memory, 64.0 GiB  up",
        "         1 RemoteBackend  redis://cache-1:6379  open",
        "plugins  lmcache-core 1.0: file, redis",
        "         acme-checks 1.0: acme",
        "         acme-late 1.0: late is unavailable: needs 'influx'; run: pip install influx",
        "health   up",
    ]


def test_without_file_and_pages_it_says_how_to_get_them(tmp_path: Path) -> None:
    configuration = load(environ={}, third_party=False).configuration

    assert told(configuration, http=None, grpc=None)[1:5] == [
        "config   no file: defaults",
        "address  ipc:///run/lmcache-core/server.sock",
        "http     off; internal_api_server_enabled = true turns it on",
        "grpc     off; internal_grpc_port turns it on",
    ]


def test_a_page_whose_port_was_taken_is_not_called_off() -> None:
    configuration = load(environ={"LMCACHE_INTERNAL_API_SERVER_ENABLED": "1"}, third_party=False).configuration

    assert told(configuration, http=None)[3] == "http     not served; the log says why"


def test_long_lines_are_folded(configuration: Configuration) -> None:
    health = {"healthy": False, "state": "down", "reason": "word " * 60, "since_s": 1.0}
    lines = told(configuration, health=health)

    assert max(map(len, lines)) <= 100
    assert lines[-2].startswith("         word ")


def test_the_record_for_programs_has_the_same(configuration: Configuration) -> None:
    fields = report_fields(status_document(), configuration, PLUGINS)

    assert json.loads(json.dumps(fields)) == {
        "version": "0.1.0",
        "boot_id": "b1",
        "pid": 4711,
        "config_file": "lmcache.toml",
        "address": "ipc:///run/lmcache-core/server.sock",
        "http": "http://127.0.0.1:6999",
        "grpc": "127.0.0.1:7999",
        "capacity_bytes": 64 << 30,
        "chunk_tokens": 128,
        "tiers": [
            {"name": "LocalCPUBackend", "url": ""},
            {"name": "RemoteBackend", "url": "redis://cache-1:6379"},
        ],
        "plugins": {"redis": "1.0", "file": "1.0", "acme": "1.0"},
        "plugins_failed": {"late": "needs 'influx'; run: pip install influx"},
        "health": "up",
    }


# -- what keeps it from starting --------------------------------------------------------


def test_a_wrong_configuration_is_2_with_all_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--set", "chunk_sise=1", "--set", "server_address=tcp://10.0.0.7:1"]) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error: command line: chunk_sise: unknown key; did you mean 'chunk_size'?",
        "error: command line: server_address: is on '10.0.0.7', and a cache server shares memory with its clients, so it speaks to its own host only; write ipc:///path/of/a.sock or tcp://127.0.0.1:port",
    ]


def test_a_required_plugin_that_does_not_load_is_3(put_on_path, capsys: pytest.CaptureFixture[str]) -> None:
    put_on_path("missing")

    assert main(["serve", "--set", "plugins.required=['missing_hard']"]) == 3
    shown = capsys.readouterr().err
    assert shown.splitlines()[-1].startswith("error: plugin 'missing_hard' (acme-missing 1.0): ")
    assert "Traceback" not in shown


def test_a_file_that_is_not_there_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", "gone.toml"]) == 2
    assert capsys.readouterr().err.startswith("error: --config: ")


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tuple(f"lmcache_core.{part}" for part in ("app", "server", "wire"))
    loaded = {name: module for name, module in sys.modules.items() if name.startswith(parts)}
    for name, module in loaded.items():  # the package gets back what it had, not what is imported anew
        package, _, attribute = name.rpartition(".")
        monkeypatch.setattr(sys.modules[package], attribute, module)
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zmq", None)

    assert main(["serve"]) == 2
    assert capsys.readouterr().err == "error: a cache server needs 'zmq'; run: pip install 'lmcache-core[server]'\n"
