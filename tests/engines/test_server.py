"""A cache server: cold and warm in new processes, vLLM's OpenAI server with streaming clients, the server killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.engines.cache_page import wait_for_status
from tests.engines.conftest import PROMPTS
from tests.engines.engine import Answer, Engine
from tests.engines.http_server import OpenAIServer
from tests.engines.model import model_folder
from tests.redis_server import RedisServer
from tests.serve_process import ServeProcess

TOKENS = 6
CLIENTS = 6
CHUNK_TOKENS = 64


@pytest.fixture(scope="module")
def text_of() -> Callable[[list[int]], str]:
    """What the model's tokens read, as vLLM streams them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    return lambda tokens: str(tokenizer.decode(tokens))


@pytest.fixture(scope="module")
def starting(server: ServeProcess, tmp_path_factory: pytest.TempPathFactory, expected: list[Answer]) -> OpenAIServer:
    """vLLM's server, which takes a minute to start, beside the engine that is used before it."""
    del expected
    extra = {"lmcache.mode": "server", "lmcache.server_address": server.address}
    return OpenAIServer(model_folder(), extra, tmp_path_factory.mktemp("openai") / "log")


@pytest.fixture(scope="module")
def cold_answers(starting: OpenAIServer, open_engine: Callable[[str], Engine]) -> list[Answer]:
    engine = open_engine("server")
    answers = engine.answer(PROMPTS)
    engine.stop()
    return answers


@pytest.fixture(scope="module")
def openai(starting: OpenAIServer, cold_answers: list[Answer]) -> Iterator[OpenAIServer]:
    with starting:
        yield starting


def ask_all(openai: OpenAIServer) -> list[str]:
    with ThreadPoolExecutor(CLIENTS) as clients:
        return ["".join(pieces) for pieces in clients.map(lambda prompt: openai.stream(prompt, TOKENS), PROMPTS)]


def test_a_cold_server_changes_no_token(cold_answers: list[Answer], expected: list[Answer]) -> None:
    assert [answer.tokens for answer in cold_answers] == [answer.tokens for answer in expected[:20]]


def test_concurrent_streams_are_as_without_a_cache_and_the_counts_agree(
    openai: OpenAIServer, expected: list[Answer], text_of: Callable[[list[int]], str]
) -> None:
    before = openai.metrics()
    assert ask_all(openai) == [text_of(answer.tokens) for answer in expected[:20]]
    after = openai.metrics()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown("vllm:external_prefix_cache_hits_total") > 0.7 * sum(answer.prompt_tokens for answer in expected[:20])
    assert grown("lmcache:connector_hit_tokens_total") == grown("vllm:external_prefix_cache_hits_total")
    assert grown("lmcache:connector_loaded_tokens_total") == grown("vllm:external_prefix_cache_hits_total")
    assert grown("lmcache:connector_failed_tokens_total") == 0


def test_streams_come_in_pieces(openai: OpenAIServer) -> None:
    assert len(openai.stream(PROMPTS[0], TOKENS)) >= TOKENS


def test_a_server_that_dies_changes_no_text_and_is_used_again_when_it_is_back(
    openai: OpenAIServer, server: ServeProcess, expected: list[Answer], text_of: Callable[[list[int]], str]
) -> None:
    texts = [text_of(answer.tokens) for answer in expected[:20]]
    timer = threading.Timer(0.7, server.send, [signal.SIGKILL])
    timer.start()
    assert ask_all(openai) == texts
    timer.join()
    server.ended()
    server.start()
    end = time.monotonic() + 60
    hits = 0.0
    while not hits:
        assert time.monotonic() < end, "the server that is back is not used"
        before = openai.metrics()
        openai.stream(PROMPTS[0], 1)
        hits = openai.metrics()["lmcache:connector_hit_tokens_total"] - before["lmcache:connector_hit_tokens_total"]
    assert "".join(openai.stream(PROMPTS[0], TOKENS)) == texts[0]


def test_a_frozen_server_changes_no_text(
    openai: OpenAIServer, server: ServeProcess, expected: list[Answer], text_of: Callable[[list[int]], str]
) -> None:
    timer = threading.Timer(0.3, server.send, [signal.SIGSTOP])
    timer.start()
    try:
        assert ask_all(openai) == [text_of(answer.tokens) for answer in expected[:20]]
    finally:
        timer.join()
        server.send(signal.SIGCONT)


def test_while_the_store_is_dead_vllm_is_well_the_cache_names_it_and_the_counters_say_why(
    openai: OpenAIServer,
    server: ServeProcess,
    stock: RedisServer,
    expected: list[Answer],
    text_of: Callable[[list[int]], str],
) -> None:
    texts = [text_of(answer.tokens) for answer in expected[:20]]
    asked_tokens = sum(answer.prompt_tokens for answer in expected[:20])
    looked_up_tokens = sum(answer.prompt_tokens for answer in expected[:20] if answer.prompt_tokens > CHUNK_TOKENS)
    page = server.addresses["http"]
    wait_for_status(page, 200)
    stock.kill()
    try:
        verdict = wait_for_status(page, 503)
        before = openai.metrics()
        assert (ask_all(openai), openai.health()) == (texts, 200)
        dead = grown(before, openai.metrics())
    finally:
        stock.start()
    assert verdict["reason"].startswith(f"check 'RemoteBackendHealthCheck({stock.url})' fails: ")
    assert dead == {"asked": asked_tokens, "hit": 0, "ours": {"requested": looked_up_tokens}}
    assert wait_for_status(page, 200)["reason"] == ""
    ask_all(openai)  # what the server has of the prompts by now
    before = openai.metrics()
    assert (ask_all(openai), openai.health()) == (texts, 200)
    back = grown(before, openai.metrics())
    assert back["asked"] == asked_tokens
    assert back["hit"] > 0.7 * asked_tokens
    assert back["ours"] == {"requested": looked_up_tokens, "hit": back["hit"], "loaded": back["hit"]}


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    """Tokens by vLLM's counters, and by ours as far as they have moved."""

    def of(name: str) -> float:
        return after[name] - before.get(name, 0)

    ours = {name: of(f"lmcache:connector_{name}_tokens_total") for name in ("requested", "hit", "loaded", "failed")}
    return {
        "asked": of("vllm:external_prefix_cache_queries_total"),
        "hit": of("vllm:external_prefix_cache_hits_total"),
        "ours": {name: tokens for name, tokens in ours.items() if tokens},
    }


def test_vllm_is_well_at_the_end(openai: OpenAIServer) -> None:
    assert "Traceback" not in Path(openai.log).read_text(errors="replace")
