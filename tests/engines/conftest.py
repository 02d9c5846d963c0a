"""Real vLLM engines. Only for `make test-vllm`: in the other environment there is no vLLM."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
from tests.engines.engine import Answer, Engine, Fleet
from tests.engines.latent import latent_folder
from tests.engines.model import model_folder
from tests.engines.plans import PAGES, QUICK, plans
from tests.engines.prompts import growing, twenty
from tests.engines.tiny import tiny_folder
from tests.redis_server import RedisServer
from tests.serve_process import ServeProcess

# `make test` runs this folder by itself, with vLLM; where there is none, nothing here can be imported.
collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]

if importlib.util.find_spec("vllm"):
    forkserver.ensure_running()  # imports vLLM for the engines, while this process does so for itself
    with warnings.catch_warnings():  # vLLM's and torch's own, while they are imported
        warnings.simplefilter("ignore")
        importlib.import_module("lmcache_plugins.vllm.connector")

PROMPTS = twenty()
GROWING = growing()
GROWING_TOKENS = 64
WINDOW_TOKENS = 80


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis that all engines share."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def stock() -> Iterator[RedisServer]:
    """The store behind the cache server."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def server(stock: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A cache server that all engines share."""
    folder = tmp_path_factory.mktemp("s")
    settings: dict[str, object] = {"max_local_cpu_size": 1.0, "chunk_size": 64, "remote_url": stock.url, **PAGES}
    settings |= {f"extra_config.{name}": value for name, value in QUICK.items()}
    with ServeProcess(folder, **settings) as process:
        yield process


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that engines keep chunks in."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the models, by name."""
    smol, folder = model_folder(), tmp_path_factory.mktemp("models")
    return {
        "smol": smol,
        "tiny": tiny_folder(folder / "tiny", smol),
        "windows": tiny_folder(folder / "windows", smol, window_tokens=WINDOW_TOKENS),
        "latent": latent_folder(folder / "latent", smol),
    }


@pytest.fixture(scope="session")
def fleet(
    models: dict[str, Path],
    store: Path,
    redis: RedisServer,
    server: ServeProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Engines by name, in the order in which the tests use them."""
    found = Fleet(
        models,
        plans(store=store, redis_url=redis.url, server_address=server.address),
        tmp_path_factory.mktemp("logs"),
    )
    yield found
    found.stop()


@pytest.fixture(scope="session")
def tiny_expected(fleet: Fleet) -> list[Answer]:
    """What vLLM answers without a connector: the twenty prompts, then the growing ones."""
    engine = fleet.take("tiny plain")
    try:
        return [*engine.answer(PROMPTS), *engine.answer(GROWING, GROWING_TOKENS)]
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def expected(fleet: Fleet) -> list[Answer]:
    """What vLLM answers the twenty prompts with the other model."""
    engine = fleet.take("plain")
    try:
        return engine.answer(PROMPTS)
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def tokens_of() -> Callable[[list[Answer]], list[list[int]]]:
    """Tokens alone, to compare."""
    return lambda answers: [answer.tokens for answer in answers]


@pytest.fixture(scope="module")
def open_engine(fleet: Fleet) -> Iterator[Callable[[str], Engine]]:
    """Takes engines of the fleet, and ends them with the module."""
    taken: list[Engine] = []

    def take(name: str) -> Engine:
        taken.append(fleet.take(name))
        return taken[-1]

    yield take
    for engine in taken:
        engine.stop()
