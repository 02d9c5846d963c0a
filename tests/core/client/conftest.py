"""A fake server and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.cache_stage import let_in
from tests.core.client.fake_server import FakeServer
from tests.memory_store import LAYOUT

from lmcache_core.adapters.tensors import TensorAdapter
from lmcache_core.client.cache_client import CacheClient
from lmcache_core.client.wish import Wish
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.wire.address import ServerAddress

MakeClient = Callable[..., CacheClient]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(LAYOUT) as server:
        yield server


@pytest.fixture
def make_client(server: FakeServer) -> Iterator[MakeClient]:
    made: list[CacheClient] = []

    def make(address: ServerAddress | None = None, timeout_s: float = 10.0, **wish: object) -> CacheClient:
        client = CacheClient(
            address or server.address,
            Wish(layout=LAYOUT, model_name="m", **wish),  # type: ignore[arg-type]
            make_adapter=lambda chunk_tokens: TensorAdapter(LAYOUT, chunk_tokens),
            metrics=CacheMetrics(),
            timeout_s=timeout_s,
            name="test",
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: MakeClient) -> CacheClient:
    return let_in(make_client())
