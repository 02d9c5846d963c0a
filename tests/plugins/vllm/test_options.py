from __future__ import annotations

import pytest

from lmcache_core import ConfigError
from lmcache_plugins.vllm.options import ConnectorOptions, read_options


def test_no_keys_are_the_defaults() -> None:
    assert read_options({}, environ={}) == ConnectorOptions()


def test_own_keys_are_read_and_the_rest_is_the_cores() -> None:
    options = read_options(
        {
            "lmcache.config_file": "/etc/lmcache.toml",
            "lmcache.mode": "server",
            "lmcache.async_load": False,
            "lmcache.async_lookup": False,
            "lmcache.save_generated": True,
            "lmcache.chunk_size": 64,
            "lmcache.remote_url": "file:///data",
        },
        environ={},
    )
    assert options == ConnectorOptions(
        config_file="/etc/lmcache.toml",
        mode="server",
        async_load=False,
        async_lookup=False,
        save_generated=True,
        overrides={"chunk_size": 64, "remote_url": "file:///data"},
    )


def test_keys_without_the_prefix_are_named_as_ignored() -> None:
    assert read_options({"chunk_size": 64, "lmcache.chunk_size": 32}, environ={}).ignored == ("chunk_size",)


def test_the_mode_may_come_from_the_environment() -> None:
    assert read_options({}, environ={"LMCACHE_MODE": "server"}).mode == "server"


def test_the_key_wins_over_the_environment() -> None:
    assert read_options({"lmcache.mode": "in_process"}, environ={"LMCACHE_MODE": "server"}).mode == "in_process"


def test_all_wrong_values_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        read_options({"lmcache.async_load": "yes", "lmcache.mode": "cloud", "lmcache.config_file": 3}, environ={})
    assert str(caught.value) == (
        "lmcache.async_load: must be true or false, got 'yes'; lmcache.mode: must be in_process or server, got 'cloud'; "
        "lmcache.config_file: must be a path, got 3"
    )
