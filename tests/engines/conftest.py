"""Real vLLM engines. Only for `make test-vllm`: in the other environment there is no vLLM."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engines.engine import Answer, Engine, Fleet
from tests.engines.model import model_folder
from tests.engines.plans import plans
from tests.engines.prompts import growing, twenty
from tests.redis_server import RedisServer
from tests.serve_process import ServeProcess

# `make test` runs this folder by itself, with vLLM; where there is none, nothing here can be imported.
collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]

if importlib.util.find_spec("vllm"):
    with warnings.catch_warnings():  # vLLM's and torch's own, while they are imported
        warnings.simplefilter("ignore")
        importlib.import_module("lmcache_plugins.vllm.connector")

PROMPTS = twenty()
GROWING = growing()
GROWING_TOKENS = 64


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis that all engines share."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A cache server that all engines share."""
    folder = tmp_path_factory.mktemp("s")
    with ServeProcess(folder, max_local_cpu_size=1.0, chunk_size=64) as process:
        yield process


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that engines keep chunks in."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def fleet(
    store: Path, redis: RedisServer, server: ServeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Engines by name, in the order in which the tests use them."""
    logs = tmp_path_factory.mktemp("logs")
    found = Fleet(model_folder(), plans(store=store, redis_url=redis.url, server_address=server.address), logs)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def expected(fleet: Fleet) -> list[Answer]:
    """What vLLM answers without a connector: the twenty prompts, then the growing ones."""
    engine = fleet.take("plain")
    try:
        return [*engine.answer(PROMPTS), *engine.answer(GROWING, GROWING_TOKENS)]
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def tokens_of() -> Callable[[list[Answer]], list[list[int]]]:
    """Tokens alone, to compare."""
    return lambda answers: [answer.tokens for answer in answers]


@pytest.fixture(scope="module")
def open_engine(fleet: Fleet, expected: list[Answer]) -> Iterator[Callable[[str], Engine]]:
    """Takes engines of the fleet, and ends them with the module."""
    del expected  # first of all, so that engines start in their order
    taken: list[Engine] = []

    def take(name: str) -> Engine:
        taken.append(fleet.take(name))
        return taken[-1]

    yield take
    for engine in taken:
        engine.stop()
