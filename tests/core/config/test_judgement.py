"""Wrong values: strict types, all at once, each with its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Problems = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_cpu = 'false'", "local_cpu: must be true or false, got 'false'; write it without quotes"),
        ("local_cpu = 0", "local_cpu: must be true or false, got 0"),
        ("local_cpu = ''", "local_cpu: must be true or false, got ''"),
        ("max_local_cpu_size = '8.0'", "max_local_cpu_size: must be a number, got '8.0'; write it without quotes"),
        ("max_local_cpu_size = '5GB'", "max_local_cpu_size: must be a number, got '5GB'; write it without a unit"),
        ("max_local_cpu_size = true", "max_local_cpu_size: must be a number, got true"),
        ("max_local_cpu_size = nan", "max_local_cpu_size: must be a finite number, got nan"),
        ("max_local_cpu_size = inf", "max_local_cpu_size: must be a finite number, got inf"),
        ("max_local_cpu_size = -inf", "max_local_cpu_size: must be a finite number, got -inf"),
        ("max_local_cpu_size = -1", "max_local_cpu_size: must be 0 or more, got -1"),
        ("chunk_size = 256.0", "chunk_size: must be a whole number, got 256.0"),
        ("chunk_size = true", "chunk_size: must be a whole number, got true"),
        ("chunk_size = -1", "chunk_size: must be 1 or more, got -1"),
        ("chunk_size = [256]", "chunk_size: must be a whole number"),
        ("chunk_size = 1979-05-27", "chunk_size: must be a whole number, got 1979-05-27"),
        ("remote_url = 5", "remote_url: must be text"),
        ("remote_url = 'localhost:6379'", "remote_url: a store's address starts with scheme://, such as redis://host:6379 or file:///path"),
        ("remote_url = ['redis://h']", "remote_url: must be text"),
        ("remote_serde = 'cachegen'", "remote_serde: 'cachegen' is not supported: chunks are kept as they are, so that answers stay exact; write 'naive' or leave the key out"),
        ("plugins.disabled = ['a', 2]", "plugins.disabled: item [1] must be text, got 2"),
        ("plugins.disabled = 'a,b'", "plugins.disabled: must be a list, got 'a,b'"),
        ("local_disk = 's3://x'\nmax_local_disk_size = 1", "local_disk: must be a path, or a file:// address with three slashes such as file:///var/cache/lmcache"),
        ("local_disk = ''\nmax_local_disk_size = 1", "local_disk: must not be empty; leave the key out for no disk tier"),
        ("internal_api_server_port_start = 70000", "internal_api_server_port_start: must be 65535 or less, got 70000"),
        ("log_level = 'loud'", "log_level: must be one of 'CRITICAL', 'ERROR', 'WARNING', 'INFO' or 'DEBUG', got 'loud'"),
        ("lmcache_instance_id = ''", "lmcache_instance_id: must have 1 or more characters, got ''"),
        ("extra_config.ping_interval = 0", "extra_config.ping_interval: must be greater than 0, got 0"),
        ("extra_config.get_blocking_failed_threshold = 1.5", "extra_config.get_blocking_failed_threshold: must be a whole number, got 1.5"),
        ("extra_config.fallback_policy = 5", "extra_config.fallback_policy: must be the name of a policy, or a list of names, the one to use first in front"),
    ],
)  # fmt: skip
def test_one_line_for_each_bad_value(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [f"lmcache.toml:1: {message}"]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("max_local_cpu_size = 5_000", "max_local_cpu_size", 5000.0),
        ("chunk_size = 0x100", "chunk_size", 256),
        ("max_local_cpu_size = 8", "max_local_cpu_size", 8.0),
        ("log_level = 'debug'", "log_level", "DEBUG"),
        ("local_disk = '/a'\nmax_local_disk_size = 1", "local_disk_path", Path("/a")),
        ("local_disk = 'file:///a%20b/'\nmax_local_disk_size = 1", "local_disk_path", Path("/a b")),
    ],
)
def test_good_values(judge, text: str, key: str, value: object) -> None:
    assert getattr(judge(text).values, key) == value


def test_an_empty_file_gives_the_defaults(judge) -> None:
    values = judge("").values
    assert (values.chunk_size, values.local_cpu, values.max_local_cpu_size) == (256, True, 5.0)
    assert (values.extra_config.ping_interval, values.extra_config.ping_timeout) == (30.0, 5.0)
    assert (values.extra_config.get_blocking_failed_threshold, values.extra_config.waiting_time_for_recovery) == (
        10,
        300.0,
    )
    assert values.extra_config.fallback_policy == "recompute"


def test_three_wrong_keys_and_two_wrong_variables_are_five_problems(problems: Problems) -> None:
    found = problems(
        "chunk_sise = 1\nlocal_cpu = 'false'\n[extra_config]\nping_timout = 1",
        {"LMCACHE_CHUNKSIZE": "1", "LMCACHE_BLOCKING_TIMEOUT_SECS": "soon"},
    )
    assert found == [
        "lmcache.toml:1: chunk_sise: unknown key; did you mean 'chunk_size'?",
        "lmcache.toml:2: local_cpu: must be true or false, got 'false'; write it without quotes",
        "lmcache.toml:4: extra_config.ping_timout: unknown key; did you mean 'ping_timeout'?",
        "LMCACHE_BLOCKING_TIMEOUT_SECS: must be a number, got 'soon'",
        "LMCACHE_CHUNKSIZE: unknown variable; did you mean LMCACHE_CHUNK_SIZE?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timeout_s = 'soon'", "timeout_s: must be a number, got 'soon'"),
        ("timeout_s = 0", "timeout_s: must be greater than 0, got 0"),
        ("dsn = 5", "dsn: must be text"),
        ("tags = 'a,b'", "tags: must be a list"),
        ("folder = 5", "folder: must be text, got 5"),
        ("mode = 'slow'", "mode: no mode slow"),
    ],
)
def test_a_plugins_table_is_named(problems: Problems, text: str, message: str) -> None:
    assert problems(f"[extra_config.database]\n{text}") == [
        f"lmcache.toml:2: extra_config.database.{message} (table of plugin 'database')"
    ]


def test_strict_json_types_reach_plugins(judge) -> None:
    table = judge("[extra_config.database]\nfolder = '/x'\ntags = ['a']\ndsn = 'd'").table("database")
    assert (table.folder, table.tags, table.dsn.get_secret_value()) == (Path("/x"), ("a",), "d")


def test_missing_keys_of_a_plugins_table_are_at_its_header(problems: Problems) -> None:
    assert problems("\n[extra_config.mooncakestore]\nprotocol = 'tcp'")[0] == (
        "lmcache.toml:2: extra_config.mooncakestore.global_segment_size: is required and missing (table of plugin 'mooncake')"
    )


def test_a_required_key_that_is_wrong_is_not_called_missing(problems: Problems) -> None:
    text = """[extra_config.mooncakestore]
local_hostname = 1
metadata_server = "m"
protocol = "tcp"
master_server_address = "a"
global_segment_size = 1
local_buffer_size = 1
transfer_timeout = 1
"""
    assert problems(text) == [
        "lmcache.toml:2: extra_config.mooncakestore.local_hostname: must be text, got 1 (table of plugin 'mooncake')"
    ]


def test_a_remote_without_name_and_one_without_url(problems: Problems) -> None:
    assert problems("[[remotes]]\nurl = 'redis://h'\n[[remotes]]\nname = 'a'") == [
        "lmcache.toml:1: remotes[0].name: is required and missing",
        "lmcache.toml:3: remotes[1].url: is required and missing",
    ]


def test_all_that_is_wrong_with_a_remote(problems: Problems) -> None:
    text = "[[remotes]]\nname = ''\nurl = 'reddis://h'\n[remotes.extra_config]\nping_interval = 'x'\nfallback_policy = 'bypas'"
    assert problems(text) == [
        "lmcache.toml:2: remotes[0].name: must match ^[A-Za-z0-9][A-Za-z0-9_.\\-]*$, got ''",
        "lmcache.toml:3: remotes[0].url: no loaded plugin serves reddis:// (known: file, mooncakestore, redis, rediss); did you mean 'redis'?",
        "lmcache.toml:5: remotes[0].extra_config.ping_interval: must be a number, got 'x'",
        "lmcache.toml:6: remotes[0].extra_config.fallback_policy: 'bypas' is no fallback policy of any loaded plugin (known: local_cpu, recompute)",
    ]


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\nb", "-a", "ü", "x" * 64])
def test_a_name_that_is_no_label(problems: Problems, name: str) -> None:
    assert len(problems(None, {}, remotes=[{"name": name, "url": "redis://h"}])) == 1


def test_a_global_error_is_told_once(problems: Problems) -> None:
    text = "[extra_config]\nping_interval = 0\n[[remotes]]\nname = 'a'\nurl = 'redis://h'"
    assert problems(text) == ["lmcache.toml:2: extra_config.ping_interval: must be greater than 0, got 0"]


def test_a_validators_error_of_the_global_table_is_told_once(problems: Problems) -> None:
    text = "[extra_config.database]\nmode = 'slow'\n[[remotes]]\nname = 'a'\nurl = 'redis://h'"
    assert problems(text) == ["lmcache.toml:2: extra_config.database.mode: no mode slow (table of plugin 'database')"]


def test_a_remotes_own_leaves_lie_over_the_global_ones(judge) -> None:
    text = """
[extra_config]
ping_interval = 60.0
[extra_config.database]
mode = "safe"
[[remotes]]
name = "a"
url = "redis://h"
[remotes.extra_config]
ping_timeout = 1.0
[remotes.extra_config.database]
timeout_s = 9.0
"""
    extra = judge(text).values.remotes[0].extra_config
    assert (extra.ping_interval, extra.ping_timeout) == (60.0, 1.0)
    assert (extra.table("database").mode, extra.table("database").timeout_s) == ("safe", 9.0)


def test_the_legacy_remote_comes_first(judge) -> None:
    values = judge("remote_url = 'redis://x'\n[[remotes]]\nname = 'a'\nurl = 'file:///y'").values
    assert [(remote.name, str(remote.url)) for remote in values.all_remotes()] == [
        ("", "redis://x"),
        ("a", "file:///y"),
    ]
    assert values.all_remotes()[0].extra_config is values.extra_config


def test_an_object_of_the_command_line_is_refused(problems: Problems) -> None:
    assert problems(None, {}, chunk_size=object()) == [
        "command line: chunk_size: a value of type 'object' cannot be a setting"
    ]


def test_a_path_of_the_command_line_is_text(judge) -> None:
    assert judge(None, {}, local_disk=Path("/a"), max_local_disk_size=1).values.local_disk == "/a"


def test_the_plugins_table_alone_steers_loading(judge) -> None:
    from lmcache_core.config.sources import read_sources

    Path("lmcache.toml").write_text("[plugins]\ndisabled = ['a']\n[extra_config.of_a]\nx = 1")
    assert read_sources(config_file=None, environ={}).plugins().disabled == ("a",)


def test_a_wrong_plugins_table_names_everything_that_can_be_judged(judge) -> None:
    from lmcache_core.config.sources import read_sources
    from lmcache_core.errors import ConfigError

    Path("lmcache.toml").write_text("chunk_sise = 1\n[plugins]\nthird_party = 'no'\n[extra_config.of_a]\nx = 1")
    with pytest.raises(ConfigError) as caught:
        read_sources(config_file=None, environ={"LMCACHE_CHUNKSIZE": "1"}).plugins()
    assert caught.value.problems == (
        "lmcache.toml:1: chunk_sise: unknown key; did you mean 'chunk_size'?",
        "lmcache.toml:3: plugins.third_party: must be true or false, got 'no'",
        "LMCACHE_CHUNKSIZE: unknown variable; did you mean LMCACHE_CHUNK_SIZE?",
    )
