"""Another process's scheduler asks the cache of an engine in this one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.core.app.conftest import CHUNK_TOKENS, LAYOUT, MakeClient

from lmcache_core import CacheManager, listen


@pytest.fixture
def manager(address: str) -> Iterator[CacheManager]:
    keys = {"chunk_size": CHUNK_TOKENS, "max_local_cpu_size": 0.01}
    with CacheManager.from_config(overrides=keys, environ={}, layout=LAYOUT, model_name="m") as manager:
        server = listen(manager, address)
        yield manager
        server.stop()


def test_a_lookup_from_outside_finds_what_the_engine_stored(manager: CacheManager, make_client: MakeClient) -> None:
    manager.engine.store(torch.arange(40), torch.zeros(LAYOUT.kv_shape(40)))

    assert make_client().lookup(torch.arange(40)) == 32


def test_its_promise_is_kept_by_the_engines_retrieve(manager: CacheManager, make_client: MakeClient) -> None:
    manager.engine.store(torch.arange(40), torch.zeros(LAYOUT.kv_shape(40)))
    make_client().lookup(torch.arange(40), request_id="r")
    manager.engine.clear()

    assert int(manager.engine.retrieve(torch.arange(40), torch.ones(LAYOUT.kv_shape(40)), request_id="r").sum()) == 32


def test_nothing_is_stored_from_outside(manager: CacheManager, make_client: MakeClient) -> None:
    assert make_client().store(torch.arange(40), torch.zeros(LAYOUT.kv_shape(40))) == 0


def test_another_model_is_refused_in_a_sentence(manager: CacheManager, make_client: MakeClient, address: str) -> None:
    client = make_client(model_name="other")

    assert client.lookup(torch.arange(40)) == 0
    assert client.reason == (
        f"the cache at {address} is that of model 'm', rank 0 of 1, layout {LAYOUT.fingerprint}; "
        f"asked was for model 'other', ranks [0] of 1, layout {LAYOUT.fingerprint}"
    )
