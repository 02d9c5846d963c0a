"""Names that nobody claims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Problems = Callable[..., list[str]]


def test_an_unknown_key_at_the_top(problems: Problems) -> None:
    assert problems("\nchunk_sise = 1") == ["lmcache.toml:2: chunk_sise: unknown key; did you mean 'chunk_size'?"]


def test_an_unknown_key_in_a_core_table(problems: Problems) -> None:
    assert problems("[plugins]\nrequire = []") == [
        "lmcache.toml:2: plugins.require: unknown key; did you mean 'required'?"
    ]


def test_an_unknown_key_in_extra_config(problems: Problems) -> None:
    assert problems("[extra_config]\nping_timout = 1") == [
        "lmcache.toml:2: extra_config.ping_timout: unknown key; did you mean 'ping_timeout'?"
    ]


def test_an_unknown_key_in_a_plugins_table(problems: Problems) -> None:
    assert problems("[extra_config.database]\ntimeouts = 1") == [
        "lmcache.toml:2: extra_config.database.timeouts: unknown key; did you mean 'timeout_s'? (table of plugin 'database')"
    ]


def test_the_table_of_a_plugin_that_is_not_loaded(problems: Problems) -> None:
    assert problems("[extra_config.influx]\nurl = 'x'") == [
        (
            "lmcache.toml:1: extra_config.influx: would belong to plugin 'influx', which is not loaded: "
            "needs 'influxdb_client'; run: pip install 'lmcache-core[influx]'"
        )
    ]


def test_a_variable_of_a_plugin_that_is_not_loaded(problems: Problems) -> None:
    assert problems(None, {"LMCACHE_EXTRA_CONFIG__INFLUX__URL": "x"}) == [
        (
            "LMCACHE_EXTRA_CONFIG__INFLUX__URL: would belong to plugin 'influx', which is not loaded: "
            "needs 'influxdb_client'; run: pip install 'lmcache-core[influx]'"
        )
    ]


def test_a_table_that_no_plugin_owns(problems: Problems) -> None:
    assert problems("[extra_config.zzz]") == [
        "lmcache.toml:1: extra_config.zzz: no loaded plugin owns table 'zzz'; install the plugin that does, or remove it"
    ]


def test_a_misspelt_table(problems: Problems) -> None:
    assert problems("[extra_config.databse]") == [
        "lmcache.toml:1: extra_config.databse: no loaded plugin owns table 'databse'; did you mean 'database'?"
    ]


def test_an_unknown_key_of_a_remote(problems: Problems) -> None:
    assert problems(
        "[[remotes]]\nname = 'a'\nurl = 'redis://h'\nnam = 1\n[remotes.extra_config]\nping_intervl = 1"
    ) == [
        "lmcache.toml:4: remotes[0].nam: unknown key; did you mean 'name'?",
        "lmcache.toml:6: remotes[0].extra_config.ping_intervl: unknown key; did you mean 'ping_interval'?",
    ]


@pytest.mark.parametrize("key", ["ping_interval", "database", "lookup_backoff_time"])
def test_a_key_of_extra_config_at_the_top(problems: Problems, key: str) -> None:
    assert problems(f"{key} = 1") == [f"lmcache.toml:1: {key}: unknown key here; it belongs under [extra_config]"]


def test_a_core_key_in_extra_config(problems: Problems) -> None:
    assert problems("[extra_config]\nchunk_size = 1") == [
        "lmcache.toml:2: extra_config.chunk_size: unknown key here; it belongs at the top level, above all tables"
    ]


def test_a_dotted_key(problems: Problems) -> None:
    assert problems("[extra_config]\n'plugin.frontend.port' = 1") == [
        (
            "lmcache.toml:2: extra_config.plugin.frontend.port: unknown key; "
            "write a table [extra_config.<plugin>] instead of dots within a key"
        )
    ]


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("local_device", "use local_cpu (true or false)"),
        ("pipelined_backend", "writes are always behind the request; use write_behind_chunks for their bound"),
    ],
)
def test_a_retired_key_is_refused_with_its_replacement(problems: Problems, key: str, instead: str) -> None:
    assert problems(f"{key} = 1") == [f"lmcache.toml:1: {key}: retired by LMCache; {instead}"]
    name = f"LMCACHE_{key.upper()}"
    assert problems("", {name: "1"}) == [f"{name}: retired by LMCache; {instead}"]


def test_a_retired_variable(problems: Problems) -> None:
    assert problems(None, {"LMCACHE_USE_EXPERIMENTAL": "True"}) == [
        "LMCACHE_USE_EXPERIMENTAL: unknown variable; LMCache has retired it and nothing takes its place; remove it"
    ]


def test_what_lmcache_knows_and_we_do_not_use_is_one_warning(judge) -> None:
    found = judge(
        "enable_p2p = true\ngds_path = 'x'\n[extra_config]\nsave_only_first_rank = true\nhistogram_bucket_x = [1]",
        {
            "LMCACHE_USE_LAYERWISE": "1",
            "LMCACHE_EXTRA_CONFIG__USE_ODIRECT": "1",
            "LMCACHE_EC_X": "1",
            "REDIS_TIMEOUT": "1",
        },
    )
    assert found.warnings == (
        (
            "known to LMCache, not used here, ignored: LMCACHE_EC_X, LMCACHE_EXTRA_CONFIG__USE_ODIRECT, "
            "LMCACHE_USE_LAYERWISE, REDIS_TIMEOUT, lmcache.toml:1: enable_p2p, lmcache.toml:2: gds_path, "
            "lmcache.toml:4: extra_config.save_only_first_rank, lmcache.toml:5: extra_config.histogram_bucket_x"
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extra_config = 3", "lmcache.toml:1: extra_config: must be a table"),
        ("plugins = []", "lmcache.toml:1: plugins: must be a table"),
        (
            "extra_config.database = 'x'",
            "lmcache.toml:1: extra_config.database: must be a table (table of plugin 'database')",
        ),
        ("remotes = 3", "lmcache.toml:1: remotes: must be a list"),
        ("remotes = [3]", "lmcache.toml:1: remotes[0]: must be a table"),
        ("[remotes]\nname = 'a'", "lmcache.toml:1: remotes: must be a list"),
        ("[[chunk_size]]", "lmcache.toml:1: chunk_size: must be a whole number"),
    ],
)
def test_wrong_shapes(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [message]


def test_a_key_of_the_command_line(problems: Problems) -> None:
    assert problems(None, {}, chunk_sise=1) == ["command line: chunk_sise: unknown key; did you mean 'chunk_size'?"]


def test_an_override_with_dots(judge) -> None:
    assert judge(None, {}, **{"extra_config.ping_interval": 60}).values.extra_config.ping_interval == 60
