"""What the plugin declares."""

from __future__ import annotations

import subprocess
import sys

from lmcache_plugins.redis.hooks import lmcache_settings, lmcache_storage_backends
from lmcache_plugins.redis.settings import RedisSettings


def test_the_plugin_declares_its_schemes_and_its_extra() -> None:
    (spec,) = lmcache_storage_backends()

    assert spec.schemes == ("redis", "valkey", "rediss", "valkeys", "unix", "redis+unix")
    assert (spec.requires, spec.extra) == (("redis",), "lmcache-core[redis]")


def test_the_plugin_declares_its_table() -> None:
    assert list(lmcache_settings()) == [RedisSettings]


def test_loading_the_plugin_does_not_import_redis() -> None:
    script = "import sys, lmcache_plugins.redis.hooks; sys.exit('redis' in sys.modules or 'torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
