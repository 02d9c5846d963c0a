import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.redis_server import RedisServer

from lmcache_core.cli.finding import Finding, Grade
from lmcache_core.cli.machine import examine_disk, examine_http, examine_memory, examine_packages
from lmcache_core.cli.main import main
from lmcache_core.config.model import CoreConfig

GIB = 1 << 30
Doctor = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the command on a file's text; gives exit code and lines."""

    def run(toml: str, *more: str) -> tuple[int, list[str]]:
        file = tmp_path / "cache.toml"
        file.write_text("max_local_cpu_size = 0.001\n" + toml)
        code = main(["doctor", str(file), *more])
        return code, capsys.readouterr().out.splitlines()

    return run


def find(lines: list[str], subject: str) -> str:
    (found,) = [line for line in lines if line[6:].startswith(f"{subject}: ")]
    return found


def values(**changes: object) -> CoreConfig:
    return CoreConfig.model_validate(changes)


# -- the whole command ----------------------------------------------------------------------------------------------


def test_a_configuration_that_works_ends_with_0(doctor: Doctor, tmp_path: Path, redis_server: RedisServer) -> None:
    code, lines = doctor(f"""
remote_url = "{redis_server.url}"
local_disk = "{tmp_path}/disk"
max_local_disk_size = 0.001
remotes = [{{name = "shared", url = "file://{tmp_path}/kv"}}]
""")

    assert code == 0
    assert {line[:4] for line in lines[:-1]} == {"ok  "}
    assert find(lines, "store RemoteBackend").startswith(f"ok    store RemoteBackend: {redis_server.url} answers in ")
    assert find(lines, f"check RemoteBackendHealthCheck({redis_server.url})").startswith(
        f"ok    check RemoteBackendHealthCheck({redis_server.url}): passes (load_failures 0, ping_ms "
    )
    assert lines[-1].endswith(" ok, 0 to look at, 0 failed")


def test_it_leaves_nothing_in_a_store(doctor: Doctor, redis_server: RedisServer) -> None:
    doctor(f'remote_url = "{redis_server.url}"')
    with redis_server.client() as client:
        left = client.dbsize()

    assert left == 0


def test_a_dead_store_fails_with_its_reason(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, lines = doctor(f'remote_url = "redis://:canary@127.0.0.1:{port}"')

    assert code == 1
    assert find(lines, "store RemoteBackend").startswith("fail  ")
    assert "connection refused" in find(lines, "store RemoteBackend")
    assert find(lines, f"check RemoteBackendHealthCheck(redis://127.0.0.1:{port})").startswith("fail  ")
    assert "canary" not in "\n".join(lines)


@pytest.mark.timing
def test_a_frozen_store_costs_its_timeouts_only(doctor: Doctor, redis_server: RedisServer) -> None:
    redis_server.pause()
    started = time.monotonic()
    code, lines = doctor(f'remote_url = "{redis_server.url}"\n[extra_config]\nping_interval = 1\nping_timeout = 0.2\n')
    elapsed_s = time.monotonic() - started

    assert code == 1
    assert find(lines, "store RemoteBackend").startswith("fail  ")
    assert elapsed_s < 5.0


def test_one_dead_store_does_not_hide_the_others(doctor: Doctor, tmp_path: Path) -> None:
    code, lines = doctor(f"""
remote_url = "redis://127.0.0.1:1"
remotes = [{{name = "shared", url = "file://{tmp_path}/kv"}}]
""")

    assert code == 1
    assert find(lines, "store RemoteBackend-shared").startswith("ok    ")


def test_every_wrong_key_is_a_line(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMCACHE_CHUNKSIZE", "1")
    code, lines = doctor("chunk_sise = 3\nlocal_cpu = 7\n")
    failed = [line for line in lines if line.startswith("fail  configuration: ")]

    assert code == 1
    assert len(failed) == 3


def test_every_plugin_is_a_line(doctor: Doctor) -> None:
    _, lines = doctor("")
    named = {line.split()[2].rstrip(":") for line in lines if line[6:].startswith("plugin ")}

    assert {"fallback", "file", "redis", "remote_health"} <= named


def test_a_plugin_that_does_not_load_is_to_be_looked_at(doctor: Doctor, put_on_path: Callable[..., None]) -> None:
    put_on_path("broken")
    code, lines = doctor("")
    odd = [line for line in lines if line.startswith("warn  plugin ")]

    assert code == 0
    assert odd
    assert all("; see: lmcachectl plugins show " in line for line in odd)


def test_a_disabled_plugin_is_as_it_should_be(doctor: Doctor) -> None:
    _, lines = doctor('[plugins]\ndisabled = ["redis"]\n')

    assert find(lines, "plugin redis").startswith("ok    plugin redis: is disabled")


def test_without_any_check_it_says_so(doctor: Doctor) -> None:
    checking = ["local_cpu_health", "local_disk_health", "remote_health", "thread_health", "write_behind_health"]
    _, lines = doctor(f"[plugins]\ndisabled = {checking}\n")

    assert find(lines, "checks") == (
        "warn  checks: no health check applies, so no outage would be noticed before a request meets it"
    )


ODD = {
    "odd_name": "health check NamelessCheck cannot be used: RuntimeError: no licence; the check does not run",
    "an_odd_twin": (
        "health check 'LocalCPUHealthCheck' is already declared by plugin 'local_cpu_health'; rename or disable one; "
        "the check does not run"
    ),
    "odd_policy": (
        "health check 'drained': fallback policy 'drain' is not known; "
        "known: bypass, local_cpu, read_only, recompute, write_only; everything is recomputed while the check fails"
    ),
}
"""Plugin to what the start of a cache would find wrong with one of its checks."""


@pytest.mark.parametrize("name", ODD)
def test_a_check_that_cannot_be_used_fails_its_plugin(
    name: str, doctor: Doctor, put_on_path: Callable[..., None]
) -> None:
    put_on_path("odd")
    _, lines = doctor(f"[plugins]\ndisabled = {sorted({'odd_interval', *ODD} - {name})}\n")

    assert [line for line in lines if line.startswith("fail")] == [f"fail  plugin {name}: {ODD[name]}"]


def test_the_other_checks_run_all_the_same(doctor: Doctor, put_on_path: Callable[..., None]) -> None:
    put_on_path("odd")
    _, lines = doctor("[plugins]\ndisabled = ['odd_interval', 'an_odd_twin', 'odd_policy']\n")

    assert find(lines, "check sound") == "ok    check sound: passes"


def test_what_the_configuration_says_of_a_check_holds(doctor: Doctor, put_on_path: Callable[..., None]) -> None:
    put_on_path("odd")
    tuned = '[[extra_config.checks]]\nmatch = "hurried"\ninterval = 3.0\n'
    _, lines = doctor(f"[plugins]\ndisabled = ['odd_name', 'an_odd_twin', 'odd_policy']\n{tuned}")

    assert find(lines, "check hurried") == "ok    check hurried: passes"


def test_an_entry_that_fits_no_check_fails(doctor: Doctor) -> None:
    code, lines = doctor('[[extra_config.checks]]\nmatch = "LocalCpu*"\n')

    assert code == 1
    assert find(lines, "checks").startswith(
        "fail  checks: extra_config.checks[0].match: no health check is called 'LocalCpu*'"
    )


def test_a_policy_that_can_do_nothing_for_a_check_fails(doctor: Doctor) -> None:
    code, lines = doctor('[[extra_config.checks]]\nmatch = "LocalCPU*"\nfallback_policy = "local_cpu"\n')

    assert code == 1
    assert " health check 'LocalCPUHealthCheck': " in find(lines, "checks")


def test_the_file_may_be_named_once_only(doctor: Doctor) -> None:
    assert doctor("", "--config", "other.toml")[0] == 2


def test_a_file_that_is_missing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "nowhere.toml"])
    lines = capsys.readouterr().out.splitlines()

    assert code == 1
    assert [line for line in lines if line.startswith("fail  configuration: ")]


def test_it_does_not_import_torch(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from lmcache_core.cli.main import main\n"
        f"main(['doctor', '--config', {os.devnull!r}])\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout.splitlines()[-1] == "False"


# -- the machine ----------------------------------------------------------------------------------------------------


@pytest.fixture
def memory(tmp_path: Path) -> Callable[..., Finding]:
    """Examines memory on a made-up machine with 8 GiB, of which 4 are free."""

    def examine(wanted_gib: float, limit: str = "max\n") -> Finding:
        meminfo, cgroup = tmp_path / "meminfo", tmp_path / "memory.max"
        meminfo.write_text("MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  4194304 kB\n")
        cgroup.write_text(limit)
        (finding,) = examine_memory(wanted_gib, meminfo, cgroup)
        return finding

    return examine


@pytest.mark.parametrize(
    ("wanted_gib", "limit", "finding"),
    [
        (2, "max\n", Finding(Grade.OK, "memory", "max_local_cpu_size = 2 GiB of 4.0 GiB that are free")),
        (
            5,
            "max\n",
            Finding(
                Grade.WARN, "memory", "max_local_cpu_size = 5 GiB is more than the 4.0 GiB that are free now; lower it"
            ),
        ),
        (
            9,
            "max\n",
            Finding(Grade.FAIL, "memory", "max_local_cpu_size = 9 GiB is more than the 8.0 GiB there are; lower it"),
        ),
        (
            2,
            f"{GIB}\n",
            Finding(Grade.FAIL, "memory", "max_local_cpu_size = 2 GiB is more than the 1.0 GiB there are; lower it"),
        ),
    ],
)
def test_memory(memory: Callable[..., Finding], wanted_gib: float, limit: str, finding: Finding) -> None:
    assert memory(wanted_gib, limit) == finding


def test_memory_that_cannot_be_read_is_to_be_looked_at(tmp_path: Path) -> None:
    (finding,) = examine_memory(2.0, tmp_path / "none", tmp_path / "none")

    assert finding == Finding(
        Grade.WARN, "memory", f"{tmp_path}/none cannot be read, so max_local_cpu_size = 2 GiB was not compared"
    )


def test_no_disk_tier_is_no_finding() -> None:
    assert list(examine_disk(values())) == []


def test_a_disk_that_is_too_small_is_to_be_looked_at(tmp_path: Path) -> None:
    (finding,) = examine_disk(values(local_disk=str(tmp_path / "a" / "b"), max_local_disk_size=10.0**9))

    assert finding.grade is Grade.WARN
    assert finding.text.startswith("max_local_disk_size = 1e+09 GiB is more than the ")
    assert finding.text.endswith(f" GiB that are free in {tmp_path}; lower it")


def test_a_disk_folder_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = examine_disk(values(local_disk=str(tmp_path / "file"), max_local_disk_size=1.0))

    assert finding == Finding(Grade.FAIL, "local_disk", f"{tmp_path}/file is no folder; name another one")


def test_a_disk_folder_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    (finding,) = examine_disk(values(local_disk=str(tmp_path), max_local_disk_size=1.0))

    assert finding == Finding(
        Grade.FAIL,
        "local_disk",
        f"{tmp_path} cannot be written by this user; change its permissions or name another folder",
    )


def test_without_torch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    assert list(examine_packages()) == [
        Finding(
            Grade.WARN,
            "torch",
            "is not installed, so no engine can use the cache here; pip install 'lmcache-core[torch]'",
        )
    ]


def test_a_port_is_looked_at_only_when_pages_are_wanted() -> None:
    assert list(examine_http(values())) == []


def test_a_free_port_is_ok() -> None:
    (finding,) = examine_http(values(internal_api_server_enabled=True, internal_api_server_port_start=0))

    assert finding == Finding(Grade.OK, "http", "127.0.0.1 port 0 is free")


def test_a_taken_port_is_to_be_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (finding,) = examine_http(values(internal_api_server_enabled=True, internal_api_server_port_start=port))

    assert finding == Finding(
        Grade.WARN,
        "http",
        f"cannot listen on 127.0.0.1 port {port}: address already in use; a cache may be running already "
        "(see: lmcachectl health), else choose another internal_api_server_port_start",
    )


def test_without_the_http_extra_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (finding,) = examine_http(values(internal_api_server_enabled=True))

    assert finding == Finding(Grade.FAIL, "http", "needs starlette, uvicorn; pip install 'lmcache-core[http]'")
