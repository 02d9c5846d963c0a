"""The same through a cache server: from one process to the next, and when the server goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.plugins.transformers.models import padded, prompt

from lmcache_core import CacheClient, CacheServer, connect
from lmcache_plugins.transformers.generation import CachedGeneration, Served

TOKENS = prompt(22)
NEW = {"max_new_tokens": 5, "do_sample": False}


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s.sock"


@pytest.fixture
def server(address: str) -> Iterator[CacheServer]:
    keys = {"chunk_size": 4, "max_local_cpu_size": 0.01, "server_address": address}
    with CacheServer.from_config(overrides=keys, environ={}) as opened:
        yield opened


@pytest.fixture
def make_client(model: Any, address: str) -> Iterator[Callable[[], CacheClient]]:
    made: list[CacheClient] = []

    def make() -> CacheClient:
        layout = CachedGeneration.layout_of(model)
        made.append(connect(overrides={}, environ={}, address=address, layout=layout, model_name="m"))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_what_one_client_computed_another_reuses(
    model: Any, server: CacheServer, make_client: Callable[[], CacheClient]
) -> None:
    first, second = CachedGeneration(model, make_client()), CachedGeneration(model, make_client())
    first.generate(TOKENS, **NEW)

    answer = second.generate(TOKENS, **NEW)

    assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert (first.last, second.last) == (Served(0, 20), Served(20, 0))


def test_batches(model: Any, server: CacheServer, make_client: Callable[[], CacheClient]) -> None:
    cached = CachedGeneration(model, make_client())
    batch = padded(TOKENS, prompt(30, seed=2))
    cached.generate(**batch, **NEW)

    answer = cached.generate(**batch, **NEW)

    assert torch.equal(answer, model.generate(**batch, **NEW))
    assert cached.last == Served(20 + 28, 0)


def test_an_absent_server_costs_no_answer(model: Any, make_client: Callable[[], CacheClient]) -> None:
    cached = CachedGeneration(model, make_client())

    answer = cached.generate(TOKENS, **NEW)

    assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert cached.last == Served(0, 0)


def test_a_server_that_stops_costs_no_answer(
    model: Any, server: CacheServer, make_client: Callable[[], CacheClient]
) -> None:
    cached = CachedGeneration(model, make_client())
    cached.generate(TOKENS, **NEW)
    server.stop()

    answer = cached.generate(TOKENS, **NEW)

    assert torch.equal(answer, model.generate(TOKENS, **NEW))
    assert cached.last == Served(0, 0)


def test_threads_share_a_generation(model: Any, server: CacheServer, make_client: Callable[[], CacheClient]) -> None:
    cached = CachedGeneration(model, make_client())
    prompts = [torch.cat([TOKENS, prompt(6, seed=seed)], dim=1) for seed in range(4)]
    expected = [model.generate(tokens, **NEW) for tokens in prompts]
    answers: list[list[torch.Tensor]] = [[] for _ in prompts]

    def ask(place: int) -> None:
        answers[place] = [cached.generate(prompts[place], **NEW) for _ in range(3)]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(torch.equal(answer, expected[place]) for place, row in enumerate(answers) for answer in row)
    assert [len(row) for row in answers] == [3, 3, 3, 3]
