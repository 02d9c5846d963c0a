import json
import logging
from pathlib import Path

import pytest

from lmcache_core import ConfigError
from lmcache_plugins.upstream.configured import read_configuration


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def extra(environ: dict[str, str], **how: str) -> object:
    return read_configuration(environ, **how).configuration.values.extra_config


def test_nothing_set_is_the_defaults() -> None:
    assert extra({}).ping_interval == 30.0


def test_lmcaches_yaml_is_left_to_lmcache(tmp_path: Path) -> None:
    (tmp_path / "lmcache.yaml").write_text("chunk_size: 512\n")

    assert extra({"LMCACHE_CONFIG_FILE": str(tmp_path / "lmcache.yaml")}).ping_interval == 30.0


@pytest.mark.parametrize("variable", ["LMCORE_CONFIG_FILE", "LMCACHE_CONFIG_FILE"])
def test_a_toml_file_is_read(tmp_path: Path, variable: str) -> None:
    (tmp_path / "own.toml").write_text("[extra_config]\nping_interval = 7\n")

    assert extra({variable: str(tmp_path / "own.toml")}).ping_interval == 7.0


def test_the_own_variable_wins(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[extra_config]\nping_interval = 7\n")
    (tmp_path / "other.toml").write_text("[extra_config]\nping_interval = 8\n")

    assert extra({"LMCORE_CONFIG_FILE": "own.toml", "LMCACHE_CONFIG_FILE": "other.toml"}).ping_interval == 7.0


def test_a_file_in_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "lmcache.toml").write_text("[extra_config]\nping_interval = 7\n")

    assert extra({"LMCACHE_CONFIG_FILE": "lmcache.yaml"}).ping_interval == 7.0


def test_an_absent_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        read_configuration({"LMCORE_CONFIG_FILE": "absent.toml"})


def test_lmcaches_variables_are_left_to_lmcache() -> None:
    environ = {"LMCACHE_REMOTE_URL": "lmcore+redis://h", "LMCACHE_REMOTE_SERDE": "cachegen", "LMCACHE_NONSENSE": "1"}

    assert read_configuration(environ).configuration.values.all_remotes() == ()


def test_tables_come_from_the_shared_variable() -> None:
    table = {"push": {"checks": [{"name": "sidecar", "ttl_s": 30}]}, "policy_ladder_secs": 7}
    values = extra({"LMCACHE_EXTRA_CONFIG": json.dumps(table)})

    assert ([check.name for check in values.table("push").checks], values.policy_ladder_secs) == (["sidecar"], 7.0)


def test_a_table_of_the_shared_variable_must_be_right() -> None:
    with pytest.raises(ConfigError) as caught:
        read_configuration({"LMCACHE_EXTRA_CONFIG": '{"push": {"chekcs": []}}'})

    assert str(caught.value) == (
        "LMCACHE_EXTRA_CONFIG: extra_config.push.chekcs: unknown key; did you mean 'checks'? (table of plugin 'push')"
    )


@pytest.mark.parametrize(
    "table",
    [
        {"storage_plugin.mine.class_name": "C", "remote_storage_plugin.lmcore.url": "x"},
        {"fs_base_path": "/x", "valkey_mode": "cluster", "a_connectors_own_key": 1},
        {"nixl_backend_params": {"file_path": "/x"}},
        {"ping_interval": "5", "ping_timeout": -1, "fallback_policy": "LOCAL_CPU"},
        {"ping_intervall": 5},
    ],
)
def test_what_is_lmcaches_in_the_shared_variable_stops_nothing(table: dict[str, object]) -> None:
    values = read_configuration({"LMCACHE_EXTRA_CONFIG": json.dumps(table)}, url="file:///x").configuration.values

    assert (values.extra_config.ping_interval, len(values.all_remotes())) == (30.0, 1)


@pytest.mark.parametrize("text", ["", "null", "{}"])
def test_a_shared_variable_that_lmcache_takes_for_none_is_none(text: str) -> None:
    assert extra({"LMCACHE_EXTRA_CONFIG": text}).ping_interval == 30.0


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            {"pish": {}},
            "LMCACHE_EXTRA_CONFIG: table 'pish' is left to lmcache, as no loaded plugin has it",
        ),
        (
            {"polcy_ladder_secs": 7},
            (
                "LMCACHE_EXTRA_CONFIG: 'polcy_ladder_secs' is left to lmcache, as no loaded plugin has it; "
                "did you mean 'policy_ladder_secs'?"
            ),
        ),
    ],
)
def test_what_may_have_been_meant_for_us_is_said(caplog, table: dict[str, object], line: str) -> None:
    with caplog.at_level(logging.WARNING, "lmcache_plugins.upstream"):
        extra({"LMCACHE_EXTRA_CONFIG": json.dumps(table)})

    assert caplog.messages == [line]


def test_a_variable_of_one_key_is_ours_alone() -> None:
    assert extra({"LMCACHE_EXTRA_CONFIG__PING_INTERVAL": "7"}).ping_interval == 7.0
    with pytest.raises(ConfigError, match="LMCACHE_EXTRA_CONFIG__PING_INTERVALL: unknown variable"):
        read_configuration({"LMCACHE_EXTRA_CONFIG__PING_INTERVALL": "7"})


@pytest.mark.parametrize("text", ["nonsense", "[1]"])
def test_a_shared_variable_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="LMCACHE_EXTRA_CONFIG"):
        read_configuration({"LMCACHE_EXTRA_CONFIG": text})


def test_an_address_takes_the_place_of_all_configured_stores(tmp_path: Path) -> None:
    (tmp_path / "lmcache.toml").write_text(
        'local_disk = "disk"\nmax_local_disk_size = 1.0\nremote_url = "redis://a"\n'
        '[[remotes]]\nname = "b"\nurl = "redis://b"\n'
    )
    values = read_configuration({}, url="redis://user:canary@c:1").configuration.values

    assert ([str(remote.url) for remote in values.all_remotes()], values.local_disk) == (["redis://c:1"], None)
