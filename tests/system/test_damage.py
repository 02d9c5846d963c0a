"""Chunks cut short, lengthened or flipped in a real store: a miss that is counted, never a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, KVLayout
from lmcache_core.tokens.hashing import token_array

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=8, dtype="float32")
CHUNK_TOKENS = 16
TOKENS = list(range(3 * CHUNK_TOKENS))
HEADER_BYTES = 128
FRAME_BYTES = HEADER_BYTES + LAYOUT.bytes_per_token * CHUNK_TOKENS


@contextmanager
def cache_over(url: str) -> Iterator[CacheManager]:
    overrides = {"chunk_size": CHUNK_TOKENS, "max_local_cpu_size": 0.001, "remote_url": url}
    made = CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="m")
    with made as cache:
        yield cache


def fill(url: str) -> torch.Tensor:
    kv = torch.randn(LAYOUT.kv_shape(len(TOKENS)))
    with cache_over(url) as cache:
        cache.engine.store(TOKENS, kv)
    return kv


def read(cache: CacheManager) -> tuple[int, torch.Tensor]:
    """Tokens delivered, and the tensor, which was full of sevens before."""
    out = torch.full(LAYOUT.kv_shape(len(TOKENS)), 7.0)
    return int(cache.engine.retrieve(TOKENS, out).sum()), out


def lost(cache: CacheManager) -> float:
    """Chunks counted as lost, whatever the reason."""
    family = next(one for one in cache.metrics.registry.collect() if one.name == "lmcache:lost_chunks")
    return sum(sample.value for sample in family.samples if sample.name.endswith("_total"))


def assert_prefix_alone(cache: CacheManager, kv: torch.Tensor) -> None:
    delivered, out = read(cache)
    assert delivered == CHUNK_TOKENS
    assert torch.equal(out[:, :, :CHUNK_TOKENS], kv[:, :, :CHUNK_TOKENS])
    assert bool((out[:, :, CHUNK_TOKENS:] == 7.0).all())


def chunk_files(folder: Path) -> list[Path]:
    """The three chunks' files."""
    return list(folder.glob("m@*/*/*.kv"))


def cut(length: int) -> Callable[[bytes], bytes]:
    return lambda frame: frame[:length] + bytes(max(0, length - len(frame)))


def flip(place: int) -> Callable[[bytes], bytes]:
    def change(frame: bytes) -> bytes:
        changed = bytearray(frame)
        changed[place] ^= 0x10
        return bytes(changed)

    return change


DAMAGES = {
    "empty": cut(0),
    "one byte": cut(1),
    "inside the header": cut(HEADER_BYTES // 2),
    "header alone": cut(HEADER_BYTES),
    "inside the payload": cut(FRAME_BYTES // 2),
    "last byte missing": cut(FRAME_BYTES - 1),
    "one byte too many": cut(FRAME_BYTES + 1),
    "flipped magic": flip(0),
    "flipped size": flip(33),
    "flipped key": flip(90),
    "flipped payload": flip(HEADER_BYTES + 100),
    "flipped last byte": flip(-1),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_ends_the_prefix(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    url = f"file://{tmp_path}/kv"
    kv = fill(url)
    with cache_over(url) as cache:
        digest = cache.access.format.run(token_array(TOKENS), "", "").digests[1].hex()
        (second,) = [file for file in chunk_files(tmp_path / "kv") if file.stem == digest]
        second.write_bytes(damage(second.read_bytes()))
        assert_prefix_alone(cache, kv)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_counted_or_plainly_absent(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    url = f"file://{tmp_path}/kv"
    fill(url)
    for file in chunk_files(tmp_path / "kv"):
        file.write_bytes(damage(file.read_bytes()))

    with cache_over(url) as cache:
        found = cache.engine.lookup(TOKENS)
        delivered, _ = read(cache)
        counted = lost(cache)

    assert delivered == 0
    assert counted > 0 or found == 0


def test_damaged_file_is_gone_after_it_was_met(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/kv"
    fill(url)
    for file in chunk_files(tmp_path / "kv"):
        file.write_bytes(flip(-1)(file.read_bytes()))
    with cache_over(url) as cache:
        read(cache)

    with cache_over(url) as cache:
        assert cache.engine.lookup(TOKENS) == 0


@pytest.mark.parametrize("place", [0.0, 0.02, 0.5, 0.999])
def test_flipped_byte_in_redis_is_a_counted_miss(place: float, redis_server: RedisServer) -> None:
    fill(redis_server.url)
    client = redis.Redis(host="127.0.0.1", port=redis_server.port)
    for name in client.scan_iter("*"):
        value = client.get(name)
        if isinstance(value, bytes) and len(value) >= FRAME_BYTES:
            start = len(value) - FRAME_BYTES
            client.set(name, flip(start + int(place * FRAME_BYTES))(value))
    client.close()

    with cache_over(redis_server.url) as cache:
        delivered, out = read(cache)
        assert delivered == 0
        assert bool((out == 7.0).all())
        assert lost(cache) > 0
