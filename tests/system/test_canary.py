"""A password planted in every place where a store takes one shows nowhere, whatever goes wrong."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, KVLayout

CANARY = "c4n4ry-p4ssw0rd"
LAYOUT = KVLayout(num_layers=1, num_kv_heads=1, head_size=4, dtype="float32")
PAGES = ("/", "/livez", "/readyz", "/health", "/metrics", "/periodic-threads")


def page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return str(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read())


def settings(server: RedisServer, place: str) -> dict[str, object]:
    address = f"127.0.0.1:{server.port}"
    if place == "url":
        return {"remote_url": f"redis://someone:{CANARY}@{address}"}
    if place == "unreachable url":
        return {"remote_url": f"redis://someone:{CANARY}@127.0.0.1:1"}
    return {
        "remote_url": f"redis://{address}",
        "extra_config": {"redis": {"username": "someone", "password": CANARY}},
    }


@pytest.mark.parametrize("place", ["url", "unreachable url", "table"])
def test_password_of_a_failing_store_shows_nowhere(
    place: str, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    overrides = {
        "chunk_size": 4,
        "max_local_cpu_size": 0.001,
        "internal_api_server_enabled": True,
        "internal_api_server_port_start": 0,
        **settings(redis_server, place),
    }
    made = CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m")
    with made as cache:
        cache.engine.store([1, 2, 3, 4], torch.ones(LAYOUT.kv_shape(4)))
        cache.engine.lookup([5, 6, 7, 8])
        cache.storage.flush(5.0)
        assert cache.http is not None
        shown = [page(f"{cache.http.address}{path}") for path in PAGES]
        shown += [repr(cache.health.report()), repr(cache.config), repr(cache.config.values), repr(vars(cache))]
        shown += [str(row) for row in cache.config.rows(all=True)]
    logged = [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    logged += ["".join(traceback.format_exception(*record.exc_info)) for record in caplog.records if record.exc_info]

    assert not any(cache.is_healthy() for cache in [made])
    assert CANARY not in "".join([*shown, *logged, caplog.text])


@pytest.mark.parametrize("command", [["doctor"], ["config", "show", "--all", "--json"], ["config", "check"]])
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_password_shows_in_no_command(
    command: list[str], debug: list[str], redis_server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "lmcache.toml").write_text(
        f'remote_url = "redis://u:{CANARY}@127.0.0.1:{redis_server.port}"\n[extra_config.redis]\npassword = "{CANARY}"\n'
    )
    code = "import sys; from lmcache_core.cli.main import main; sys.exit(main())"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}

    done = subprocess.run(
        [sys.executable, "-c", code, *debug, *command],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
