"""Tenants of the configuration, through a whole cache: quotas hold, and no page shows a salt."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from prometheus_client import generate_latest

from lmcache_core import CacheManager, KVLayout
from lmcache_core.app.status import describe_host
from lmcache_core.contracts.key import hash_salt

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=16, dtype="float32")
CHUNK_TOKENS = 64
MIB = 1 << 20
SALT = "s3cr3t-of-acme"


@pytest.fixture
def cache() -> Iterator[CacheManager]:
    overrides = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 4 * MIB / (1 << 30),
        "tenant_quota_gib": 1 * MIB / (1 << 30),
        "tenants": [{"name": "acme", "salt": SALT, "quota_gib": 2 * MIB / (1 << 30)}],
    }
    made = CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m")
    with made as cache:
        yield cache


def fill(cache: CacheManager, salt: str, prompts: int) -> None:
    for number in range(prompts):
        tokens = range(number * 1000, number * 1000 + CHUNK_TOKENS)
        cache.engine.store(tokens, torch.ones(LAYOUT.kv_shape(CHUNK_TOKENS)), salt=salt)


def test_each_tenant_keeps_to_its_quota(cache: CacheManager) -> None:
    for salt in (SALT, "x", ""):  # their quotas together are the memory
        fill(cache, salt, 100)
    acme, default, other = cache.storage.tenants()

    assert (acme.label, default.label, other.label) == ("acme", "default", "other")
    assert 1.9 * MIB < acme.bytes_used <= 2 * MIB
    assert 0.9 * MIB < default.bytes_used <= MIB
    assert 0.9 * MIB < other.bytes_used <= MIB


def test_nothing_that_is_shown_has_a_salt_or_its_hash(cache: CacheManager) -> None:
    fill(cache, SALT, 4)
    fill(cache, "x", 4)
    shown = json.dumps(describe_host(cache.host)) + generate_latest(cache.metrics.registry).decode()
    shown += str([(row.key, row.value) for row in cache.config.rows(all=True)]) + repr(cache.config.values)

    assert '"tenant": "acme"' in shown
    assert not [secret for secret in (SALT, hash_salt(SALT), hash_salt("x")) if secret in shown]
