"""A cache server as its clients and its operator see it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from tests.core.app.conftest import CHUNK_TOKENS, LAYOUT, MakeClient, MakeServer
from tests.core.telemetry.collector import Collector

from lmcache_core import CacheClient, CacheServer, Event, EventSubscriber, EventType, KVLayout, LMCacheError


class Witness(EventSubscriber):
    """Keeps the events of some kinds."""

    def __init__(self, *kinds: EventType) -> None:
        self._kinds = kinds
        self.events: list[Event] = []
        self.arrived = threading.Condition()

    def get_subscriptions(self) -> dict[EventType, object]:
        return dict.fromkeys(self._kinds, self._note)

    def _note(self, event: Event) -> None:
        with self.arrived:
            self.events.append(event)
            self.arrived.notify_all()

    def wait_for(self, count: int) -> list[Event]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.events) >= count, 10), self.events
        return self.events


def kv_of(tokens: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(LAYOUT.kv_shape(tokens), generator=torch.Generator().manual_seed(seed))


def store(client: CacheClient, tokens: int, seed: int = 0) -> int:
    return client.store(torch.arange(tokens), kv_of(tokens, seed))


def test_what_one_client_stores_another_retrieves(server: CacheServer, make_client: MakeClient) -> None:
    store(make_client(), 40)
    other, out = make_client(), torch.zeros(LAYOUT.kv_shape(40))

    mask = other.retrieve(torch.arange(40), out)

    assert mask.tolist() == [True] * 32 + [False] * 8
    assert torch.equal(out[:, :, :32], kv_of(40)[:, :, :32])


def test_a_scheduler_gets_the_smallest_prefix_of_all_ranks(server: CacheServer, make_client: MakeClient) -> None:
    store(make_client(world_size=2, rank=0), 64)
    store(make_client(world_size=2, rank=1), 32)

    assert make_client(world_size=2, ranks=(0, 1)).lookup(torch.arange(64)) == 32


def test_ranks_never_meet(server: CacheServer, make_client: MakeClient) -> None:
    store(make_client(world_size=2, rank=0), 64)

    assert make_client(world_size=2, rank=1).lookup(torch.arange(64)) == 0


@pytest.mark.parametrize(("block_tokens", "chunk_tokens"), [(1, 16), (16, 16), (6, 18), (544, 544)])
def test_a_chunk_is_whole_blocks_of_the_engine(
    server: CacheServer, make_client: MakeClient, block_tokens: int, chunk_tokens: int
) -> None:
    client = make_client(block_tokens=block_tokens)

    assert client.lookup(torch.arange(8)) == 0
    assert client.chunk_tokens == chunk_tokens


def test_engines_with_other_block_sizes_share_a_server(server: CacheServer, make_client: MakeClient) -> None:
    small, large = make_client(block_tokens=16), make_client(block_tokens=544, model_name="large")

    assert [store(small, 600), store(large, 600)] == [592, 544]
    assert [small.lookup(torch.arange(600)), large.lookup(torch.arange(600))] == [592, 544]


def test_a_chunk_larger_than_the_arena_is_refused_in_a_sentence(server: CacheServer, make_client: MakeClient) -> None:
    client = make_client(block_tokens=100_000)

    assert client.lookup(torch.arange(8)) == 0
    assert client.reason == (
        "kv layout: one chunk of 100000 tokens has 12800128 bytes and the server's memory 10735616; "
        "raise max_local_cpu_size or lower chunk_size"
    )


def test_models_of_other_shapes_share_the_arena(server: CacheServer, make_client: MakeClient) -> None:
    wide = KVLayout(num_layers=3, num_kv_heads=4, head_size=8, dtype="float32")
    kv = torch.randn(wide.kv_shape(32))
    store(make_client(), 32)
    client = make_client(layout=wide)
    client.store(torch.arange(32), kv)
    out = torch.zeros_like(kv)

    assert client.retrieve(torch.arange(32), out).all()
    assert torch.equal(out, kv)


def test_ranks_of_a_model_are_registered_once(server: CacheServer, make_client: MakeClient) -> None:
    witness = Witness(EventType.MP_KV_REGISTERED)
    server.host.bus.register_subscriber("witness", witness)
    for rank in (0, 1):
        make_client(world_size=2, rank=rank, model_type="llama").lookup([1])
    make_client(model_name="other").lookup([1])

    told = [(event.metadata["model_name"], event.metadata["world_size"]) for event in witness.wait_for(2)]

    assert told == [("m", 2), ("other", 1)]


def test_tokens_are_told_once_a_request_and_bytes_of_every_rank(server: CacheServer, make_client: MakeClient) -> None:
    witness = Witness(EventType.MP_STORE_END, EventType.MP_RETRIEVE_END)
    clients = [make_client(world_size=2, rank=rank) for rank in (0, 1)]
    for client in clients:
        client.lookup([1])
    server.host.bus.register_subscriber("witness", witness)
    for client in clients:
        store(client, 32)
        client.retrieve(torch.arange(32), torch.zeros(LAYOUT.kv_shape(32)))

    told = [(event.metadata["num_tokens"], event.metadata["total_bytes"]) for event in witness.wait_for(4)]

    assert told == [(32, 4096), (32, 4096), (0, 4096), (0, 4096)]


def test_counters_count_tokens_once_a_request(server: CacheServer, make_client: MakeClient) -> None:
    for rank in (0, 1):
        store(make_client(world_size=2, rank=rank), 32)

    counters = server.status()["counters"]

    assert (counters["stored_tokens"], counters["stored_bytes"]) == (32, 8192)


def test_the_status_is_plain_json(server: CacheServer, make_client: MakeClient) -> None:
    store(make_client(), 32)

    document = json.loads(json.dumps(server.status()))

    assert {"boot_id", "sessions", "arena", "tiers", "counters", "health", "draining"} <= set(document)


def test_a_client_reads_the_status(server: CacheServer, make_client: MakeClient) -> None:
    client = make_client()
    client.lookup([1])

    assert client.status()["sessions"][0]["registrations"] == [
        {"model_name": "m", "world_size": 1, "ranks": [0], "chunk_tokens": CHUNK_TOKENS}
    ]


def test_a_taken_address_is_a_sentence(server: CacheServer, make_server: MakeServer, address: str) -> None:
    with pytest.raises(LMCacheError) as caught:
        make_server().start()

    assert str(caught.value) == (
        f"another server, pid {os.getpid()}, serves at {address}; stop it or set server_address"
    )


def test_an_unhealthy_server_makes_calls_no_ops(
    make_server: MakeServer, make_client: MakeClient, tmp_path: Path
) -> None:
    folder = tmp_path / "kv"
    folder.mkdir()
    server = make_server(remote_url=f"file://{folder}", extra_config={"ping_interval": 0.1, "ping_timeout": 0.05})
    server.start()
    client = make_client()
    store(client, 32)
    server.host.storage.flush()
    while folder.exists():  # a probe may write into it meanwhile
        shutil.rmtree(folder, ignore_errors=True)
    server.health.wake()
    told = threading.Event()
    while server.health.is_healthy():
        told.wait(0.01)

    assert client.lookup(torch.arange(32)) == 0


def test_the_last_telemetry_is_sent_when_it_stops(
    make_server: MakeServer, make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    with Collector() as collector:
        server = make_server(usage_endpoint=str(collector.url))
        server.start()
        client = make_client(model_type="llama")
        store(client, 40)
        client.lookup(torch.arange(40))
        client.retrieve(torch.arange(40), torch.zeros(LAYOUT.kv_shape(40)))
        client.close()
        server.stop()

        (set_up,) = collector.wait_for("MPServerMessage")
        (instance,) = collector.wait_for("MPInstanceMessage")
        (counts,) = collector.wait_for("ContinuousContextMessage")

    assert (set_up["deployment_mode"], set_up["supported_transfer_mode"]) == ("mp_server", "shared_memory")
    assert (instance["model_type"], instance["attn_arch"]) == ("llama", "full")
    assert (counts["interval_num_stored_tokens"], counts["interval_num_hit_tokens"]) == (32, 32)
