"""What a real ``lmcachectl serve`` takes of the system, and how it ends while a store hangs."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.redis_server import RedisServer
from tests.serve_process import ServeProcess

from lmcache_core import CacheClient, KVLayout, connect

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS = torch.arange(64)
KV = torch.arange(2 * 2 * 64 * 8, dtype=torch.float32).reshape(2, 2, 64, 8)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lmc-") as made:
        yield Path(made)


def client(server: ServeProcess, timeout_s: float = 10.0) -> CacheClient:
    return connect(
        overrides={"blocking_timeout_secs": timeout_s},
        environ={},
        address=server.address,
        layout=LAYOUT,
        model_name="m",
    )


def test_it_may_open_as_many_files_as_the_system_lets_it(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with ServeProcess(folder, chunk_size=16) as server:
            allowed = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert allowed == (hard, hard)


@pytest.mark.timing
def test_a_hanging_prefetch_does_not_delay_the_end(folder: Path, redis_server: RedisServer) -> None:
    with ServeProcess(
        folder, remote_url=redis_server.url, chunk_size=16, server_drain_secs=1.0, blocking_timeout_secs=60.0
    ) as server:
        cache = client(server, 60.0)
        cache.store(TOKENS, KV)
        redis_server.pause()
        pending = cache.lookup_async(TOKENS + 1)
        assert not pending.done()
        began_s = time.monotonic()
        code = server.stop()
        ended_s = time.monotonic() - began_s

        assert (code, pending.result()) == (0, 0)
        assert ended_s < 10
        cache.close()
