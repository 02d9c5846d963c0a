"""What LMCache asks of a connector on its event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import pytest
from tests.upstream.conftest import wait_until


@pytest.fixture
def engine(lmcache_of, redis_server) -> Any:
    made = lmcache_of(
        remote_url=f"lmcore+{redis_server.url}", blocking_timeout_secs=2, extra_config={"ping_interval": 60}
    )
    wait_until(lambda: made.monitor.total_runs)
    made.store()
    return made


def keys_of(engine: Any) -> list[Any]:
    return [key for _, _, key in engine.engine.token_database.process_tokens(tokens=engine.tokens)]


def on_loop(engine: Any, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, engine.remote.loop)


def free_bytes(engine: Any) -> int:
    return int(engine.storage.local_cpu_backend.memory_allocator.pin_allocator.address_manager.get_free_size())


def test_leading_chunks_are_counted_in_one_round_trip(engine) -> None:
    keys = keys_of(engine)
    engine.remote.remove(keys[2])

    assert on_loop(engine, engine.remote.batched_async_contains("lookup", keys)).result(10) == 2


def test_chunks_up_to_the_first_miss_are_given_and_the_others_given_back(engine) -> None:
    keys = keys_of(engine)
    before = free_bytes(engine)
    engine.remote.remove(keys[1])
    values = on_loop(engine, engine.remote.batched_get_non_blocking("lookup", keys)).result(10)

    assert [value.get_num_tokens() for value in values] == [256]
    values[0].ref_count_down()
    wait_until(lambda: free_bytes(engine) == before)


def test_a_short_chunk_keeps_its_shape(engine) -> None:
    (value,) = on_loop(engine, engine.remote.connection.batched_get(keys_of(engine)[-1:])).result(10)

    assert (value.get_num_tokens(), list(value.get_shape())) == (1000 - 3 * 256, [2, 3, 232, 32])
    value.ref_count_down()


def test_nothing_asked_is_nothing_given(engine) -> None:
    assert on_loop(engine, engine.remote.connection.batched_get([])).result(10) == []


def test_the_loop_stays_free_while_the_store_hangs(engine, redis_server) -> None:
    redis_server.pause()
    try:
        asking = on_loop(engine, engine.remote.connection.batched_get(keys_of(engine)))
        started = time.monotonic()
        on_loop(engine, asyncio.sleep(0)).result(10)
        assert time.monotonic() - started < 1.0  # the store's answer takes till the deadline
        assert asking.result(10) == [None] * 4
    finally:
        redis_server.resume()


@pytest.mark.parametrize("call", ["get", "batched_get"])
def test_memory_of_a_cancelled_call_is_given_back(engine, redis_server, call: str) -> None:
    keys, before = keys_of(engine), free_bytes(engine)
    redis_server.pause()
    try:
        wanted = getattr(engine.remote.connection, call)
        asking = on_loop(engine, wanted(keys[0] if call == "get" else keys))
        on_loop(engine, asyncio.sleep(0.05)).result(10)
        asking.cancel()
    finally:
        redis_server.resume()
    with pytest.raises(CancelledError):
        asking.result(10)

    wait_until(lambda: engine.retrieve() == 1000)
    wait_until(lambda: free_bytes(engine) == before)


def test_a_lost_put_is_counted_by_lmcache(engine, redis_server) -> None:
    redis_server.kill()
    keys = keys_of(engine)
    engine.remote.remove(keys[0])
    before = engine.remote.put_failed_count
    engine.store()

    assert engine.remote.put_failed_count > before


def test_a_key_that_is_no_whole_number_of_tokens_is_refused(engine) -> None:
    import torch

    value = engine.storage.local_cpu_backend.allocate([torch.Size([7])], [torch.uint8], None)
    with pytest.raises(Exception) as caught:
        on_loop(engine, engine.remote.connection.put(keys_of(engine)[0], value)).result(10)

    assert str(caught.value) == (
        "lmcore: a chunk of 7 bytes is lost: its length is no whole number of tokens up to 98304 bytes"
    )


def test_memory_is_given_back_where_a_thread_cannot_be_had_for_each_chunk(
    engine, redis_server, monkeypatch, caplog
) -> None:
    gc.collect()  # what earlier tests have left
    monkeypatch.setattr(logging.getLogger("lmcache.v1.memory_management"), "propagate", True)
    before = free_bytes(engine)
    start = threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if thread.name.startswith("lmcore-read-") and thread.name != "lmcore-read-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as few_threads:
        few_threads.setattr(threading.Thread, "start", start_some)
        redis_server.pause()  # so that the first thread is not free again for the second chunk
        try:
            assert engine.remote.batched_get_blocking(keys_of(engine)) == [None] * 4
        finally:
            redis_server.resume()

    wait_until(lambda: engine.retrieve() == 1000)
    wait_until(lambda: free_bytes(engine) == before)
    assert [line for line in caplog.messages if "garbage collected" in line] == []  # LMCache's own last resort
