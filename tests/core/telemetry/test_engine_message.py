from __future__ import annotations

from pathlib import Path

from lmcache_core import KVLayout
from lmcache_core.loading import load
from lmcache_core.telemetry.engine_message import engine_message


def values(**overrides: object):
    return load(overrides=overrides, environ={}).configuration.values


LAYOUT = KVLayout(num_layers=30, num_kv_heads=3, head_size=64, dtype="bfloat16")


def test_stores_are_told_by_scheme_and_never_by_address(tmp_path: Path) -> None:
    configured = values(
        remote_url="redis://user:hunter2@cache-1.internal:6379/0",
        remotes=[{"name": "b", "url": "file:///mnt/secret"}],
        local_disk=str(tmp_path),
        max_local_disk_size=1.0,
    )
    message = engine_message(configured, LAYOUT, model_name="smollm2", world_size=2, rank=1)

    assert (message.remote_schemes, message.local_device) == ("file,redis", "cpu+disk")
    assert not any(secret in repr(message) for secret in ("hunter2", "cache-1", "secret", str(tmp_path)))


def test_the_layout_is_on_one_line() -> None:
    message = engine_message(values(), LAYOUT, model_name="/srv/models/x", world_size=2, rank=1)
    assert (message.kv_shape, message.kv_dtype, message.model_name) == ("30x2x256x3x64", "bfloat16", "private")
    assert (message.world_size, message.worker_id) == (2, 1)


def test_without_an_engine_its_fields_are_empty() -> None:
    message = engine_message(values(), None, model_name="", world_size=1, rank=0)
    assert (message.kv_shape, message.kv_dtype, message.model_name) == ("", "", "")
