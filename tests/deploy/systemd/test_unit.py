"""The unit has directives that systemd knows, and fits the configuration beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.deploy.systemd.conftest import FOLDER, Unit, read_unit

from lmcache_core.cli.serve import serve
from lmcache_core.config.configuration import Configuration
from lmcache_core.errors import ConfigError, LMCacheError, PluginError
from lmcache_core.loading import load
from lmcache_core.runtime_dir import runtime_dirs

KNOWN = Path(__file__).resolve().parents[2] / "data/deploy/systemd-directives.txt"
END_S = 10.0
"""Beside the drain: the end of health checks, the last message of telemetry, the pages."""

SHAPES = {
    "BOOLEAN": r"yes|no",
    "SECONDS": r"\d+(s|min)?",
    "MODE": r"0[0-7]{3}",
    "LIMIT": r"\d+[KMGT]?|infinity",
    "INTEGER": r"-?\d+",
    "UNSIGNED": r"\d+",
    "SERVICETYPE": r"simple|exec|forking|oneshot|dbus|notify|idle",
    "KILLMODE": r"control-group|mixed|process|none",
}


def known() -> dict[str, dict[str, str]]:
    """Section to directive to kind of value."""
    found: dict[str, dict[str, str]] = {}
    section = ""
    for line in KNOWN.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#"):
            name, _, kind = line.partition("=")
            found.setdefault(section, {})[name] = kind
    return found


def wrong_in(unit: Unit) -> list[str]:
    names = known()
    wrong = []
    for section, directives in unit.items():
        for name, value in directives:
            kind = names.get(section, {}).get(name)
            if kind is None:
                wrong.append(f"[{section}] {name}")
            elif not value or re.fullmatch(SHAPES.get(kind, r".+"), value) is None:
                wrong.append(f"[{section}] {name}={value}")
    return wrong


@pytest.fixture
def configuration() -> Configuration:
    return load(config_file=FOLDER / "lmcache.toml", environ={}).configuration


@pytest.mark.parametrize("file", ["lmcache-server.service", "worker.conf"])
def test_every_directive_is_known(file: str) -> None:
    assert wrong_in(read_unit((FOLDER / file).read_text())) == []


def test_a_wrong_directive_would_be_seen() -> None:
    text = "[Unit]\nExecStart=/bin/x\n[Service]\nTimeoutStop=3\nNoNewPrivileges=maybe\nRuntimeDirectoryMode=700\n"

    assert wrong_in(read_unit(text)) == [
        "[Unit] ExecStart",
        "[Service] TimeoutStop",
        "[Service] NoNewPrivileges=maybe",
        "[Service] RuntimeDirectoryMode=700",
    ]


def test_each_directive_is_there_once(unit: Unit) -> None:
    names = [name for directives in unit.values() for name, _ in directives]

    assert len(names) == len(set(names))


def test_the_command_line_is_right(service: dict[str, str]) -> None:
    program, command, *options = shlex.split(service["ExecStart"])
    context = serve.make_context("serve", options)

    assert (program.rpartition("/")[2], command) == ("lmcachectl", "serve")
    assert context.params["config_file"] == Path("/etc/lmcache/lmcache.toml")


def test_the_configuration_is_right(configuration: Configuration) -> None:
    assert configuration.warnings == ()
    assert configuration.values.mode == "server"


def test_systemd_makes_the_folder_of_the_socket_for_this_user_alone(
    service: dict[str, str], configuration: Configuration
) -> None:
    folder = Path(str(configuration.values.server_address).removeprefix("ipc://")).parent

    assert folder == Path("/run") / service["RuntimeDirectory"]
    assert service["RuntimeDirectoryMode"] == "0700"
    assert service["User"] not in {"", "root"}


def test_the_token_is_in_the_same_folder(service: dict[str, str], tmp_path: Path) -> None:
    name, _, value = service["Environment"].partition("=")
    (tmp_path / service["RuntimeDirectory"]).mkdir()

    assert (name, value) == ("XDG_RUNTIME_DIR", "/run")
    assert runtime_dirs({name: str(tmp_path)})[0] == tmp_path / service["RuntimeDirectory"]


def test_what_is_kept_is_where_systemd_lets_it_write(service: dict[str, str], configuration: Configuration) -> None:
    values = configuration.values

    assert str(values.local_disk).startswith(f"/var/cache/{service['CacheDirectory']}/")
    assert values.health_state_dir == f"/var/lib/{service['StateDirectory']}"


def test_there_is_time_for_the_drain(service: dict[str, str], configuration: Configuration) -> None:
    assert int(service["TimeoutStopSec"].rstrip("s")) >= configuration.values.server_drain_secs + END_S


def test_there_is_memory_for_the_arena_and_the_process(service: dict[str, str], configuration: Configuration) -> None:
    assert int(service["MemoryMax"].rstrip("G")) >= configuration.values.max_local_cpu_size + 2


def test_it_tells_systemd_when_it_serves_and_is_not_started_again_in_vain(service: dict[str, str]) -> None:
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    codes = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert codes == {ConfigError.exit_code, PluginError.exit_code}
    assert LMCacheError.exit_code not in codes


def test_the_worker_is_the_same_user_and_reads_the_same_file(unit: Unit, service: dict[str, str]) -> None:
    worker = read_unit((FOLDER / "worker.conf").read_text())
    own = dict(worker["Service"])

    assert own["User"] == service["User"]
    variables = dict(each.split("=", 1) for each in own["Environment"].split())
    assert variables["LMCACHE_MODE"] == "server"
    assert f"--config {variables['LMCACHE_CONFIG_FILE']}" in service["ExecStart"]
    assert {value for _, value in worker["Unit"]} == {"lmcache-server.service"}
