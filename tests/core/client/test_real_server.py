"""A client of a real server that is killed, frozen and started again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cache_calls import fresh, kv_of, mask, read
from tests.cache_stage import CHUNK_TOKENS, OverTheWire, until


@pytest.fixture
def stage() -> Iterator[OverTheWire]:
    with closing(OverTheWire(chunk_size=CHUNK_TOKENS, max_local_cpu_size=0.01)) as stage:
        yield stage


def arenas() -> int:
    """Shared memory that is mapped here."""
    return sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines())


def before(adapter: Any, name: str, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something once, at the first copy."""
    copy, done = getattr(adapter, name), threading.Event()

    def first(*arguments: Any) -> None:
        if not done.is_set():
            done.set()
            act()
        copy(*arguments)

    monkeypatch.setattr(adapter, name, first)


@pytest.mark.timing
def test_a_server_killed_during_a_store(stage: OverTheWire, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = fresh(8)
    before(stage.cache._adapter(CHUNK_TOKENS), "gather", stage.server.kill, monkeypatch)
    began = time.monotonic()

    assert stage.cache.store(tokens, kv_of(tokens)) == 0
    assert time.monotonic() - began < 5.0
    assert until(lambda: not stage.cache.is_healthy())


def test_a_server_killed_during_a_read_gives_whole_chunks(stage: OverTheWire, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = fresh(12)
    kv = kv_of(tokens)
    stage.cache.store(tokens, kv)
    before(stage.cache._adapter(CHUNK_TOKENS), "scatter", stage.server.kill, monkeypatch)

    found, out = read(stage, tokens)

    assert found == mask(12, 12)
    assert torch.equal(out, kv)


def test_a_server_killed_between_lookup_and_read(stage: OverTheWire) -> None:
    tokens = fresh(8)
    stage.cache.store(tokens, kv_of(tokens))
    assert stage.cache.lookup(tokens) == 8
    stage.server.kill()

    found, out = read(stage, tokens)

    assert found == mask(0, 8)
    assert not out.any()


@pytest.mark.timing
def test_a_server_killed_while_a_call_waits_ends_it_at_once(stage: OverTheWire) -> None:
    tokens = fresh(8)
    stage.server.pause()
    killing = threading.Timer(0.3, stage.server.kill)
    killing.start()
    began = time.monotonic()

    assert stage.cache.lookup(tokens) == 0
    assert time.monotonic() - began < 5.0
    killing.join()


def test_a_restarted_server_is_a_new_one(stage: OverTheWire) -> None:
    tokens = fresh(8)
    stage.cache.store(tokens, kv_of(tokens))
    boots = {"", stage.cache.server.boot_id}
    mapped = arenas()
    for _ in range(2):
        stage.server.kill()
        stage.server.start()
        assert until(lambda: stage.cache.server.boot_id not in boots)

        assert stage.cache.lookup(tokens) == 0
        assert stage.cache.store(tokens, kv_of(tokens)) == 8
        assert read(stage, tokens)[0] == mask(8, 8)
        assert until(lambda: arenas() == mapped)
        boots.add(stage.cache.server.boot_id)


def test_a_server_that_ends_in_order_is_gone_too(stage: OverTheWire) -> None:
    stage.server.stop()

    reason = f"no cache server answers at {stage.server.address}; the last one has ended"
    assert until(lambda: stage.cache.reason == reason)
    assert not stage.cache.is_healthy()


@pytest.mark.timing
def test_a_frozen_server_keeps_no_call_past_its_deadline(stage: OverTheWire) -> None:
    tokens = fresh(8)
    with closing(stage.connect(timeout_s=0.5)) as client:
        client.store(tokens, kv_of(tokens))
        stage.server.pause()
        began = time.monotonic()
        assert client.lookup(tokens) == 0
        assert client.store(fresh(8), kv_of(tokens)) == 0
        assert not client.retrieve(tokens, kv_of(tokens)).any()
        took_s = time.monotonic() - began
        assert until(lambda: not client.is_healthy())
        stage.server.resume()

        assert took_s < 2.5
        assert until(lambda: client.retrieve(tokens, kv_of(tokens)).all())  # it has half a second, on any machine
    assert until(lambda: stage.held() == (0, 0)), stage.held()


def test_two_clients_share_chunks(stage: OverTheWire) -> None:
    tokens = fresh(8)
    kv = kv_of(tokens)
    stage.cache.store(tokens, kv)
    with closing(stage.connect()) as other:
        out = torch.zeros_like(kv)

        assert other.retrieve(tokens, out).all()
    assert torch.equal(out, kv)


def test_ranks_agree_on_the_shortest_prefix(stage: OverTheWire) -> None:
    tokens = fresh(12)
    with (
        closing(stage.connect(world_size=2, rank=0)) as first,
        closing(stage.connect(world_size=2, rank=1)) as second,
        closing(stage.connect(world_size=2, ranks=(0, 1))) as scheduler,
    ):
        first.store(tokens, kv_of(tokens))
        second.store(tokens[:8], kv_of(tokens[:8]))

        assert scheduler.lookup(tokens, request_id="r") == 8
        assert first.retrieve(tokens[:8], kv_of(tokens[:8]), request_id="r").all()
        assert second.retrieve(tokens[:8], kv_of(tokens[:8]), request_id="r").all()
    assert until(lambda: stage.held() == (0, 0)), stage.held()


def test_chunks_are_whole_blocks_of_the_engine(stage: OverTheWire) -> None:
    tokens = fresh(8)
    with closing(stage.connect(block_tokens=3)) as client:
        assert client.chunk_tokens == 3
        assert client.store(tokens, kv_of(tokens)) == 6
        assert client.retrieve(tokens, kv_of(tokens)).tolist() == mask(6, 8)


def test_a_layout_too_large_for_the_server_is_refused_once(stage: OverTheWire) -> None:
    from lmcache_core import KVLayout

    large = KVLayout(num_layers=200, num_kv_heads=64, head_size=128, dtype="float32")
    with closing(stage.connect(large)) as client:
        assert not client.is_healthy()
        assert client.reason.startswith("kv layout: one chunk of 4 tokens has ")
    assert stage.cache.is_healthy()


KILLED = """
import os, signal, sys, torch
from lmcache_core import KVLayout, connect
layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
client = connect(overrides={"server_address": sys.argv[1]}, environ={}, layout=layout, model_name="m")
tokens = [int(token) for token in sys.argv[3].split(",")]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "lookup":
    assert client.lookup(tokens) == 8
    die()
setattr(client._adapter(4), sys.argv[2], die)
kv = torch.zeros(layout.kv_shape(len(tokens)))
client.store(tokens, kv) if sys.argv[2] == "gather" else client.retrieve(tokens, kv)
"""


@pytest.mark.parametrize("step", ["gather", "scatter", "lookup"])
def test_a_killed_client_leaves_nothing_held(stage: OverTheWire, step: str) -> None:
    tokens = fresh(8)
    if step != "gather":
        stage.cache.store(tokens, kv_of(tokens))
    words = [sys.executable, "-c", KILLED, stage.server.address, step, ",".join(map(str, tokens))]
    assert subprocess.run(words, check=False, timeout=60).returncode == -9

    assert until(lambda: stage.held() == (0, 0)), stage.held()
    assert stage.cache.lookup(tokens) == (0 if step == "gather" else 8)
    assert stage.cache.store(tokens, kv_of(tokens)) == (8 if step == "gather" else 0)
    found, out = read(stage, tokens)
    assert found == mask(8, 8)
    assert torch.equal(out, kv_of(tokens))
