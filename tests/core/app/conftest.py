"""Servers in this process, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cache_stage import let_in

from lmcache_core import CacheClient, CacheServer, KVLayout, connect

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
CHUNK_TOKENS = 16

MakeServer = Callable[..., CacheServer]
MakeClient = Callable[..., CacheClient]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s.sock"


@pytest.fixture
def make_server(address: str) -> Iterator[MakeServer]:
    made: list[CacheServer] = []

    def make(**overrides: object) -> CacheServer:
        keys = {"chunk_size": CHUNK_TOKENS, "max_local_cpu_size": 0.01, "server_address": address, **overrides}
        made.append(CacheServer.from_config(overrides=keys, environ={}))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def server(make_server: MakeServer) -> CacheServer:
    server = make_server()
    server.start()
    return server


@pytest.fixture
def make_client(address: str) -> Iterator[MakeClient]:
    made: list[CacheClient] = []

    def make(**engine: object) -> CacheClient:
        given = {"layout": LAYOUT, "model_name": "m", "address": address, **engine}
        made.append(connect(overrides={"blocking_timeout_secs": 5.0}, environ={}, **given))  # type: ignore[arg-type]
        return let_in(made[-1])

    yield make
    for client in made:
        client.close()
