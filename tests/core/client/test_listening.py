"""A scheduler that asks the cache of an engine in another process: lookups and releases, no KV."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cache_calls import fresh, kv_of, mask
from tests.cache_stage import CHUNK_TOKENS, LAYOUT, InProcess, let_in, until
from tests.core.client.test_connection import errors

from lmcache_core import connect, listen


@pytest.fixture
def stage() -> Iterator[InProcess]:
    with closing(InProcess(chunk_size=CHUNK_TOKENS, max_local_cpu_size=0.01)) as stage:
        yield stage


@pytest.fixture
def client(stage: InProcess) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="lmc-") as folder:
        address = f"ipc://{Path(folder)}/l.sock"
        serving = listen(stage._manager, address)
        try:
            with connect(
                overrides={"server_address": address}, environ={}, layout=LAYOUT, model_name="m", ranks=(0,)
            ) as client:
                yield let_in(client)
        finally:
            serving.stop()


def test_what_the_engine_keeps_is_found(stage: InProcess, client: Any) -> None:
    tokens = fresh(10)
    stage.cache.store(tokens, kv_of(tokens))

    assert client.chunk_tokens == CHUNK_TOKENS
    assert client.lookup(tokens, request_id="r") == 8
    assert client.lookup_async(tokens, request_id="s").result() == 8
    assert stage.held() == (2, 0)
    assert client.release(tokens, request_id="s")
    assert stage.cache.retrieve(tokens, kv_of(tokens), request_id="r").tolist() == mask(8, 10)
    assert stage.held() == (0, 0)


def test_no_kv_is_taken_or_given(stage: InProcess, client: Any) -> None:
    tokens = fresh(8)
    assert client.store(tokens, kv_of(tokens)) == 0
    stage.cache.store(tokens, kv_of(tokens))

    assert not client.retrieve(tokens, kv_of(tokens)).any()
    assert stage.cache.lookup(tokens) == 8
    assert {operation for operation, _ in errors(client)} == {"store", "retrieve"}


def test_a_clear_empties_the_engines_own_tiers(stage: InProcess, client: Any) -> None:
    tokens = fresh(8)
    stage.cache.store(tokens, kv_of(tokens))

    assert [cleared.chunks for cleared in client.clear()] == [2]
    assert stage.cache.lookup(tokens) == 0


def test_what_a_closed_scheduler_was_promised_is_given_up(stage: InProcess, client: Any) -> None:
    tokens = fresh(8)
    stage.cache.store(tokens, kv_of(tokens))
    client.lookup(tokens)
    client.close()

    assert until(lambda: stage.held() == (0, 0))
