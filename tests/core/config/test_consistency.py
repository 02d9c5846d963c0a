from __future__ import annotations

from collections.abc import Callable

import pytest

Problems = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_disk = '/a'", "local_disk: needs max_local_disk_size, the GiB it may take, above 0"),
        ("max_local_disk_size = 5", "max_local_disk_size: needs local_disk, the directory to keep chunks in"),
        (
            "max_local_cpu_size = 0",
            "max_local_cpu_size: must be greater than 0, got 0: every store loads and saves through this memory, also with local_cpu = false",
        ),
        ("extra_config.ping_timeout = 30", "extra_config.ping_timeout: ping_timeout (30) must be less than ping_interval (30)"),
        ("extra_config.ping_interval = 5", "extra_config.ping_interval: ping_timeout (5) must be less than ping_interval (5)"),
        (
            "extra_config.fallback_policy = 'local-cpu'",
            "extra_config.fallback_policy: 'local-cpu' is no fallback policy of any loaded plugin (known: local_cpu, recompute); did you mean 'local_cpu'?",
        ),
        (
            "remote_url = 'influx://h'",
            "remote_url: no loaded plugin serves influx://; plugin 'influx' is not loaded: needs 'influxdb_client'; run: pip install 'lmcache-core[influx]'",
        ),
        ("remote_url = 'REDIS-SENTINEL://a:1,b:2'", "remote_url: no loaded plugin serves redis-sentinel:// (known: file, mooncakestore, redis, rediss); the nearest known name is 'rediss'"),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [f"lmcache.toml:1: {message}"]


def test_the_policy_local_cpu_needs_memory(problems: Problems) -> None:
    text = "local_cpu = false\nmax_local_cpu_size = 0\nextra_config.fallback_policy = 'local_cpu'"
    assert problems(text) == [
        "lmcache.toml:2: max_local_cpu_size: must be greater than 0, got 0: every store loads and saves through this memory, also with local_cpu = false",
        "lmcache.toml:3: extra_config.fallback_policy: 'local_cpu' needs max_local_cpu_size greater than 0",
    ]


@pytest.mark.parametrize(("other", "written"), [("near", ""), ("NEAR", ", written 'near'")])
def test_two_remotes_of_one_name(problems: Problems, other: str, written: str) -> None:
    text = f"[[remotes]]\nname = 'near'\nurl = 'redis://a'\n[[remotes]]\nname = '{other}'\nurl = 'redis://b'"
    assert problems(text) == [
        f"lmcache.toml:5: remotes[1].name: {other!r} is the name of another remote{written}; rename one"
    ]


def test_a_remotes_times_against_the_global_ones(problems: Problems) -> None:
    text = "[[remotes]]\nname = 'a'\nurl = 'redis://a'\nextra_config.ping_timeout = 60"
    assert problems(text) == [
        "lmcache.toml:4: remotes[0].extra_config.ping_timeout: ping_timeout (60) must be less than ping_interval (30)"
    ]


def test_global_times_that_do_not_fit_are_told_once(problems: Problems) -> None:
    text = "extra_config.ping_timeout = 60\n[[remotes]]\nname = 'a'\nurl = 'redis://a'"
    assert problems(text) == [
        "lmcache.toml:1: extra_config.ping_timeout: ping_timeout (60) must be less than ping_interval (30)"
    ]


def test_a_key_that_is_wrong_in_itself_is_not_compared(problems: Problems) -> None:
    assert problems("local_disk = 5\nmax_local_disk_size = 5") == ["lmcache.toml:1: local_disk: must be text, got 5"]


def test_no_plugin_brings_the_default_policy(judge) -> None:
    from lmcache_core.config.sources import read_sources
    from lmcache_core.config.validate import validate
    from lmcache_core.errors import ConfigError

    sources = read_sources(config_file=None, environ={})
    with pytest.raises(ConfigError) as caught:
        validate(sources, [], policies={}, schemes={}, unloaded={"fallback": "disabled by configuration"})
    assert str(caught.value) == (
        "extra_config.fallback_policy: 'recompute' is no fallback policy of any loaded plugin (known: none)"
    )
