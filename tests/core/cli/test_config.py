"""``lmcachectl config``, run through the command's own entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from lmcache_core.cli.main import main

CANARY = "c4n4ry"
TEXT = f"""chunk_size = 64
remote_url = "redis://user:{CANARY}@cache-1:6379"
[extra_config.redis]
password = "{CANARY}"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.upper().startswith(("LMCACHE_", "PROMETHEUS_"))]:
        monkeypatch.delenv(name)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["config", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write(text: str, name: str = "lmcache.toml") -> None:
    Path(name).write_text(text)


def test_check_without_a_file_says_so(capsys) -> None:
    assert run(capsys, "check") == (0, "ok: config file: none\n", "")


@pytest.mark.parametrize("arguments", [["site.toml"], ["--config", "site.toml"]])
def test_check_names_the_file(capsys, arguments: list[str]) -> None:
    write("chunk_size = 64", "site.toml")
    assert run(capsys, "check", *arguments) == (0, "ok: config file: site.toml\n", "")


def test_check_takes_the_file_once(capsys) -> None:
    code, _, err = run(capsys, "check", "a.toml", "--config", "b.toml")
    assert code == 2
    assert err.splitlines()[0] == "error: name the file once, as FILE or with --config"


def test_check_reports_three_keys_and_two_variables_at_once(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    write("chunk_sise = 1\nlocal_cpu = 'false'\n[extra_config.redis]\nttl = 1\n")
    monkeypatch.setenv("LMCACHE_CHUNKSIZE", "1")
    monkeypatch.setenv("LMCACHE_PIN_TIMEOUT_SEC", "soon")
    code, out, err = run(capsys, "check")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: lmcache.toml:1: chunk_sise: unknown key; did you mean 'chunk_size'?",
        "error: lmcache.toml:2: local_cpu: must be true or false, got 'false'; write it without quotes",
        "error: lmcache.toml:4: extra_config.redis.ttl: unknown key; did you mean 'ttl_s'? (table of plugin 'redis')",
        "error: LMCACHE_CHUNKSIZE: unknown variable; did you mean LMCACHE_CHUNK_SIZE?",
        "error: LMCACHE_PIN_TIMEOUT_SEC: must be a number, got 'soon'",
    ]


def test_check_of_a_missing_file(capsys) -> None:
    assert run(capsys, "check", "gone.toml") == (
        2,
        "",
        "error: --config: config file 'gone.toml' does not exist; create it or correct the name\n",
    )


def test_check_tells_warnings_and_services(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    write("enable_p2p = true")
    monkeypatch.setenv("LMCACHE_PORT", "tcp://10.0.0.1:80")
    code, out, err = run(capsys, "check")
    assert (code, out) == (0, "ok: config file: lmcache.toml\n")
    assert err.splitlines() == [
        "warning: known to LMCache, not used here, ignored: lmcache.toml:1: enable_p2p",
        "note: set by Kubernetes or Docker for a service, left alone: LMCACHE_PORT",
    ]


def test_check_of_a_table_of_a_disabled_plugin(capsys) -> None:
    write("[plugins]\ndisabled = ['redis']\n[extra_config.redis]\nttl_s = 1\n")
    code, _, err = run(capsys, "check")
    assert code == 2
    assert err.startswith(
        "error: lmcache.toml:3: extra_config.redis: would belong to plugin 'redis', which is not loaded: "
    )


def test_show_lists_value_source_and_owner(capsys) -> None:
    write(TEXT)
    code, out, err = run(capsys, "show")
    rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert out.startswith("config file: lmcache.toml\n")
    assert ["chunk_size", "64", "lmcache.toml:1", "core"] in rows
    assert ["remote_url", "redis://cache-1:6379", "lmcache.toml:2", "core"] in rows
    assert ["extra_config.redis.password", "**********", "lmcache.toml:4", "redis"] in rows
    assert CANARY not in out


def test_show_json(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    write(TEXT)
    monkeypatch.setenv("LMCACHE_LOCAL_CPU", "no")
    code, out, _ = run(capsys, "show", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["file"] == "lmcache.toml"
    assert {"key": "local_cpu", "value": False, "source": "env LMCACHE_LOCAL_CPU", "owner": "core"} in shown["keys"]
    assert CANARY not in out


def test_show_all_has_the_tables_that_are_not_configured(capsys) -> None:
    assert "extra_config.redis.ttl_s" not in run(capsys, "show")[1]
    assert "extra_config.redis.ttl_s" in run(capsys, "show", "--all")[1]


def test_show_of_a_wrong_configuration_reports_it(capsys) -> None:
    write("chunk_size = 0\nlocal_cpu = 1")
    code, out, err = run(capsys, "show")
    assert (code, out, len(err.splitlines())) == (2, "", 2)


def test_schema_has_the_plugins_tables(capsys) -> None:
    code, out, _ = run(capsys, "schema")
    schema = json.loads(out)
    assert code == 0
    assert "redis" in schema["$defs"]["ExtraConfig"]["properties"]


def test_schema_needs_no_right_configuration(capsys) -> None:
    write("chunk_sise = 1")
    assert run(capsys, "schema")[0] == 0


OLD = f"""# LMCache
chunk_size: 64
local_cpu: "false"
remote_url: "redis://:{CANARY}@h"
use_layerwise: true
extra_config:
  ping_timeout: 2
  my_secret: {CANARY}
chunk_size: 128
"""
NOTES = [
    "old.yaml:3: local_cpu: rewritten: the text 'false' as false",
    "old.yaml:5: use_layerwise: dropped: LMCache's own, nothing here takes its place",
    "old.yaml:8: extra_config.my_secret: dropped: neither LMCache nor this product has such a key",
    "old.yaml:9: chunk_size: is written twice; the last one counts",
]


def test_convert_prints_toml_and_tells_each_change(capsys) -> None:
    write(OLD, "old.yaml")
    code, out, err = run(capsys, "convert", "old.yaml")
    assert code == 0
    assert tomli.loads(out) == {
        "chunk_size": 128,
        "local_cpu": False,
        "remote_url": f"redis://:{CANARY}@h",
        "extra_config": {"ping_timeout": 2},
    }
    assert err.splitlines() == NOTES
    assert CANARY not in err


def test_convert_writes_a_file_for_its_owner_only(capsys) -> None:
    write(OLD, "old.yaml")
    code, out, _ = run(capsys, "convert", "old.yaml", "-o", "new.toml")
    assert (code, out) == (0, "")
    assert Path("new.toml").stat().st_mode & 0o777 == 0o600
    assert run(capsys, "check", "new.toml")[0] == 0


def test_convert_overwrites_nothing_unasked(capsys) -> None:
    write(OLD, "old.yaml")
    write("precious", "new.toml")
    assert run(capsys, "convert", "old.yaml", "-o", "new.toml")[::2] == (
        2,
        "error: --output: 'new.toml' exists; name another file, or give --force\n",
    )
    assert Path("new.toml").read_text() == "precious"


def test_convert_overwrites_when_asked(capsys) -> None:
    write(OLD, "old.yaml")
    write("x" * 10_000, "new.toml")
    assert run(capsys, "convert", "old.yaml", "-o", "new.toml", "--force")[0] == 0
    assert tomli.loads(Path("new.toml").read_text())["chunk_size"] == 128


def test_convert_into_a_folder_that_is_not_there(capsys) -> None:
    write(OLD, "old.yaml")
    assert run(capsys, "convert", "old.yaml", "-o", "no/new.toml")[2] == (
        "error: --output: 'no/new.toml' cannot be written: no such file or directory\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", "error: old.yaml:1: is not valid YAML: mapping values are not allowed here\n"),
        ("- 1", "error: old.yaml: holds no keys; a configuration is a YAML mapping such as chunk_size: 256\n"),
        (
            "extra_config: {t: {a: !!binary aGk=}}",
            "error: old.yaml: extra_config.t.a: a value of type 'bytes' cannot be written as TOML\n",
        ),
    ],
)
def test_convert_of_what_cannot_be_converted(capsys, text: str, message: str) -> None:
    write(text, "old.yaml")
    assert run(capsys, "convert", "old.yaml") == (2, "", message)


def test_convert_of_a_missing_file(capsys) -> None:
    assert run(capsys, "convert", "gone.yaml")[::2] == (
        2,
        "error: OLD: config file 'gone.yaml' does not exist; create it or correct the name\n",
    )


def test_convert_without_pyyaml(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    write(OLD, "old.yaml")
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert run(capsys, "convert", "old.yaml")[::2] == (
        2,
        "error: reading YAML needs PyYAML; run: pip install 'lmcache-core[yaml]'\n",
    )


def test_check_imports_neither_torch_nor_redis_nor_yaml() -> None:
    script = (
        "import sys; from lmcache_core.cli.main import main; code = main(['config', 'check']); "
        "print(code, sorted({'torch', 'redis', 'yaml', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "ok: config file: none\n0 []\n"
