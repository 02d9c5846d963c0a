from __future__ import annotations

from pathlib import Path


def rows(configuration, **switches: bool) -> dict[str, tuple[object, str, str]]:
    return {row.key: (row.value, row.source, row.owner) for row in configuration.rows(**switches)}


TEXT = """chunk_size = 64
remote_url = "redis://u:pw@h:1"
[extra_config]
ping_interval = 20.0
[extra_config.database]
dsn = "secret"
[[remotes]]
name = "a"
url = "redis://:pw@h:2"
[remotes.extra_config]
ping_timeout = 1.0
[remotes.extra_config.database]
timeout_s = 3.0
"""


def test_every_value_has_its_source_and_owner(judge) -> None:
    found = rows(judge(TEXT, {"LMCACHE_LOCAL_CPU": "true"}, log_level="DEBUG"))
    assert found["chunk_size"] == (64, "lmcache.toml:1", "core")
    assert found["local_cpu"] == (True, "env LMCACHE_LOCAL_CPU", "core")
    assert found["log_level"] == ("DEBUG", "command line", "core")
    assert found["max_local_cpu_size"] == (5.0, "default", "core")
    assert found["extra_config.ping_interval"] == (20.0, "lmcache.toml:4", "core")
    assert found["extra_config.database.dsn"] == ("**********", "lmcache.toml:6", "database")
    assert found["extra_config.database.timeout_s"] == (2.0, "default", "database")


def test_a_remote_lists_its_own_keys_only(judge) -> None:
    found = {key: row for key, row in rows(judge(TEXT)).items() if key.startswith("remotes")}
    assert found == {
        "remotes[0].name": ("a", "lmcache.toml:8", "core"),
        "remotes[0].url": ("redis://h:2", "lmcache.toml:9", "core"),
        "remotes[0].extra_config.ping_timeout": (1.0, "lmcache.toml:11", "core"),
        "remotes[0].extra_config.database.timeout_s": (3.0, "lmcache.toml:13", "database"),
    }


def test_an_address_is_shown_without_credentials(judge) -> None:
    assert rows(judge(TEXT))["remote_url"] == ("redis://h:1", "lmcache.toml:2", "core")


def test_tables_that_are_not_configured_show_with_all_only(judge) -> None:
    found = judge("")
    assert not any("mooncakestore" in key for key in rows(found))
    shown = rows(found, all=True)
    assert shown["extra_config.mooncakestore.protocol"] == ("required", "default", "mooncake")
    assert shown["extra_config.database.dsn"] == ("**********", "default", "database")


def test_an_absent_table_is_none(judge) -> None:
    assert judge("").table("database") is None
    assert judge("").table("no_such") is None


def test_an_empty_table_is_there(judge) -> None:
    assert judge("[extra_config.database]").table("database").timeout_s == 2.0


def test_the_file_is_named(judge) -> None:
    assert judge("").file == Path("lmcache.toml")


def test_no_file_is_none(judge) -> None:
    assert judge(None).file is None


def test_telemetrys_keys_are_rows_too(judge) -> None:
    found = rows(judge('usage_endpoint = "https://u:hunter2@collector.example/x"', {"DO_NOT_TRACK": "1"}))

    assert found["usage_endpoint"] == ("https://collector.example/x", "lmcache.toml:1", "core")
    assert found["track_usage"] == (False, "env DO_NOT_TRACK", "core")
    assert found["usage_track_interval"] == (600.0, "default", "core")
