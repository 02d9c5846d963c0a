"""Tenants of a real ``lmcachectl serve`` with several clients: one floods, the other keeps what it has."""

from __future__ import annotations

import json
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from tests.serve_process import ServeProcess

from lmcache_core import CacheClient, KVLayout, connect
from lmcache_core.contracts.key import hash_salt

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=16, dtype="float32")
CHUNK_TOKENS = 64
CHUNK_BYTES = 36_864  # 32 KiB of KV and a header, in whole pages
MIB = 1 << 20
GIB = 1 << 30
PROMPT_TOKENS = 16 * CHUNK_TOKENS
QUIET, LOUD = "s3cr3t-of-quiet", "s3cr3t-of-loud"
FLOODERS = 3
PROMPTS = 12

TENANTS = [
    {"name": "quiet", "salt": QUIET, "quota_gib": 2 * MIB / GIB},
    {"name": "loud", "salt_hash": hash_salt(LOUD), "quota_gib": 1 * MIB / GIB},
]


@pytest.fixture
def server() -> Iterator[ServeProcess]:
    """The quotas together are the memory."""
    settings = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 4 * MIB / GIB,
        "tenant_quota_gib": MIB / 2 / GIB,
        "internal_api_server_enabled": True,
        "internal_api_server_port_start": 0,
    }
    environ = {"LMCACHE_TENANTS": json.dumps(TENANTS)}
    with (
        tempfile.TemporaryDirectory(prefix="lmc-") as folder,
        ServeProcess(Path(folder), environ=environ, **settings) as server,  # type: ignore[arg-type]
    ):
        yield server


@pytest.fixture
def clients(server: ServeProcess) -> Iterator[list[CacheClient]]:
    made = [
        connect(environ={}, overrides={}, address=server.address, layout=LAYOUT, model_name="m")
        for _ in range(1 + FLOODERS)
    ]
    yield made
    for client in made:
        client.close()


def prompt(number: int) -> torch.Tensor:
    return torch.arange(number * PROMPT_TOKENS, (number + 1) * PROMPT_TOKENS)


def kv_of(number: int) -> torch.Tensor:
    return torch.randn(LAYOUT.kv_shape(PROMPT_TOKENS), generator=torch.Generator().manual_seed(number))


def flood(clients: list[CacheClient], salt: str) -> None:
    """Store far more than the whole memory, from all clients at once; look each prompt up."""

    def run(client: CacheClient, first: int) -> None:
        for number in range(first, first + PROMPTS):
            client.store(prompt(number), kv_of(number), salt=salt)
            client.lookup(prompt(number), salt=salt, request_id=str(number))
            client.release(prompt(number), salt=salt, request_id=str(number))

    threads = [
        threading.Thread(target=run, args=(client, 100 + place * PROMPTS)) for place, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def metrics(server: ServeProcess) -> dict[tuple[str, str], float]:
    """Samples with a tenant, by name and tenant."""
    page = text_of(server)
    return {
        (sample.name, sample.labels["tenant"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "tenant" in sample.labels
    }


def text_of(server: ServeProcess) -> str:
    with urllib.request.urlopen(f"{server.addresses['http']}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_flood_of_one_tenant_leaves_the_others_chunks_where_they_are(
    server: ServeProcess, clients: list[CacheClient]
) -> None:
    quiet, *loud = clients
    assert quiet.store(prompt(0), kv_of(0), salt=QUIET) == PROMPT_TOKENS
    flood(loud, LOUD)
    flood(loud, "of nobody in the configuration")
    out = torch.zeros(LAYOUT.kv_shape(PROMPT_TOKENS))

    assert quiet.lookup(prompt(0), salt=QUIET, request_id="r") == PROMPT_TOKENS
    assert quiet.retrieve(prompt(0), out, salt=QUIET, request_id="r").all()
    assert torch.equal(out, kv_of(0))


def test_tenants_neither_find_nor_release_what_is_another_ones(
    server: ServeProcess, clients: list[CacheClient]
) -> None:
    quiet, loud, *_ = clients
    quiet.store(prompt(0), kv_of(0), salt=QUIET)
    assert quiet.lookup(prompt(0), salt=QUIET, request_id="r") == PROMPT_TOKENS
    out = torch.zeros(LAYOUT.kv_shape(PROMPT_TOKENS))

    for salt in (LOUD, "", "x"):
        assert loud.lookup(prompt(0), salt=salt, request_id="r") == 0
        assert not loud.release(prompt(0), salt=salt, request_id="r")
        assert not loud.retrieve(prompt(0), out, salt=salt, request_id="r").any()
    assert not out.any()
    assert quiet.release(prompt(0), salt=QUIET, request_id="r")


def test_status_and_metrics_name_tenants_by_their_labels(server: ServeProcess, clients: list[CacheClient]) -> None:
    quiet, *loud = clients
    quiet.store(prompt(0), kv_of(0), salt=QUIET)
    quiet.lookup(prompt(0), salt=QUIET, request_id="r")
    quiet.release(prompt(0), salt=QUIET, request_id="r")
    flood(loud, LOUD)
    told = {one["tenant"]: one for one in server.status()["tenants"]}
    samples = metrics(server)

    assert (told["quiet"]["chunks"], told["quiet"]["used_bytes"]) == (16, 16 * CHUNK_BYTES)
    assert told["quiet"]["evicted_chunks"] == 0
    assert (told["quiet"]["quota_bytes"], told["loud"]["quota_bytes"]) == (2 * MIB, MIB)
    assert 0 < told["loud"]["used_bytes"] <= MIB
    assert told["loud"]["evicted_chunks"] > 0
    assert samples["lmcache:tenant_hit_tokens_total", "quiet"] == PROMPT_TOKENS
    assert samples["lmcache:tenant_used_bytes", "quiet"] == 16 * CHUNK_BYTES
    assert {tenant for _, tenant in samples} == {"quiet", "loud", "default", "other"}


def test_neither_pages_nor_log_show_a_salt(server: ServeProcess, clients: list[CacheClient]) -> None:
    quiet, loud, *_ = clients
    quiet.store(prompt(0), kv_of(0), salt=QUIET)
    loud.store(prompt(0), kv_of(0), salt=LOUD)
    shown = json.dumps(server.status()) + text_of(server)
    server.stop()
    shown += server.out + server.err

    assert [one for one in (QUIET, LOUD, hash_salt(QUIET), hash_salt(LOUD)) if one in shown] == []
