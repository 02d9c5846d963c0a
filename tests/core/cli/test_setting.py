"""``--set KEY=VALUE``."""

from __future__ import annotations

import pytest

from lmcache_core.cli.setting import read_settings
from lmcache_core.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ("chunk_size=256", {"chunk_size": 256}),
        ("max_local_cpu_size=0.5", {"max_local_cpu_size": 0.5}),
        ("local_cpu=false", {"local_cpu": False}),
        ("remote_url=redis://h:1?a=b", {"remote_url": "redis://h:1?a=b"}),
        ('lmcache_instance_id="5"', {"lmcache_instance_id": "5"}),
        ("plugins.disabled=['redis']", {"plugins.disabled": ["redis"]}),
        ("log_level=", {"log_level": ""}),
        ("lmcache_instance_id=2026-01-31", {"lmcache_instance_id": "2026-01-31"}),
        ("lmcache_instance_id=1\nchunk_size = 5", {"lmcache_instance_id": "1\nchunk_size = 5"}),
    ],
)
def test_a_value_is_toml_or_text(setting: str, read: dict[str, object]) -> None:
    assert read_settings([setting]) == read


def test_all_that_is_wrong_is_said_at_once_and_no_value_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(["chunk_size", "=hunter2", "a..b=hunter2", "log_level=INFO", "log_level=hunter2"])

    assert caught.value.problems == (
        "--set: 'chunk_size' is no key with a value; write KEY=VALUE, such as chunk_size=256",
        "--set: '' is no key with a value; write KEY=VALUE, such as chunk_size=256",
        "--set: 'a..b' is no key with a value; write KEY=VALUE, such as chunk_size=256",
        "--set: log_level is given twice; give it once",
    )
