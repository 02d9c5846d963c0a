"""LMCache's engine stores to and retrieves from our stores."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import torch
from tests.upstream.conftest import wait_until

CHUNKS = 4  # 1000 tokens in chunks of 256
PAYLOAD_BYTES = 3 * 2 * 256 * 32 * 2
HEADER_BYTES = 128


@pytest.fixture(autouse=True)
def only_watched(monkeypatch) -> None:
    """What the checks say changes nothing here: these tests are about the stores."""
    monkeypatch.setenv("LMCACHE_EXTRA_CONFIG", json.dumps({"checks": [{"match": "*", "enforce": False}]}))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("acme%2Fmodel@*/**/*") if path.is_file())


def spoil(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)


def test_what_is_stored_is_retrieved_from_files(lmcache_of, tmp_path: Path) -> None:
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    engine.store()

    assert (engine.lookup(), engine.retrieve()) == (1000, 1000)
    assert len(files(tmp_path / "kv")) == CHUNKS


def test_another_engine_finds_it(lmcache_of, tmp_path: Path) -> None:
    lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv").store()

    assert lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv").retrieve() == 1000


def test_what_is_stored_is_retrieved_from_redis(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=f"lmcore+{redis_server.url}")
    engine.store()

    assert (engine.lookup(), engine.retrieve()) == (1000, 1000)


def test_what_a_model_with_mla_stores_is_retrieved(lmcache_of, redis_server) -> None:
    lmcache_of(remote_url=f"lmcore+{redis_server.url}").store()  # one without, whose chunks are no use to it
    engine = lmcache_of(remote_url=f"lmcore+{redis_server.url}", use_mla=True)
    assert engine.lookup() == 0
    engine.store()

    assert (engine.lookup(), engine.retrieve()) == (1000, 1000)


def test_a_store_may_be_named_as_a_plugin_with_its_address_apart(lmcache_of, redis_server) -> None:
    engine = lmcache_of(
        remote_storage_plugins=["lmcore.shared"],
        extra_config={"remote_storage_plugin.lmcore.shared.url": redis_server.url},
    )
    engine.store()

    assert (list(engine.storage.storage_backends), engine.retrieve()) == (
        ["LocalCPUBackend", "RemoteBackend-lmcore.shared"],
        1000,
    )


def test_the_adapter_may_be_named_as_lmcache_documents_it(lmcache_of, tmp_path: Path) -> None:
    from lmcache_plugins.upstream import uninstall

    uninstall()
    key = "remote_storage_plugin.lmcore"
    engine = lmcache_of(
        remote_storage_plugins=["lmcore"],
        extra_config={
            f"{key}.module_path": "lmcache_plugins.upstream.adapter",
            f"{key}.class_name": "LMCoreConnectorAdapter",
            f"{key}.url": f"file://{tmp_path}/kv",
        },
    )
    engine.store()

    assert engine.retrieve() == 1000


def test_the_store_of_any_plugin_serves(plugin, lmcache_of) -> None:
    plugin.write("""
        class Memory(StorageBackend):
            def __init__(self): self.kept = {}
            def contains(self, keys, *, deadline):
                return next((place for place, key in enumerate(keys) if key not in self.kept), len(keys))
            def load_into(self, keys, outs, *, deadline):
                for key, out in zip(keys, outs):
                    out[:] = self.kept.get(key, out)
                return [LoadResult.HIT if key in self.kept else LoadResult.MISS for key in keys]
            def store(self, items, *, deadline): self.kept.update((key, bytes(frame)) for key, frame in items)
            def delete(self, keys, *, deadline): return sum(self.kept.pop(key, None) is not None for key in keys)
            def ping(self, *, deadline): pass
            def close(self): pass

        @hookimpl
        def lmcache_storage_backends():
            yield StorageBackendSpec(schemes=("acme",), options=None, build=lambda url, options, context: Memory())
    """)
    engine = lmcache_of(remote_url="lmcore+acme://anywhere")
    engine.store()

    assert (engine.lookup(), engine.retrieve()) == (1000, 1000)


@pytest.mark.parametrize("count", ["None", "-3", "len(keys) + 5"])
def test_a_store_that_counts_wrong_is_a_miss_and_a_failure(plugin, lmcache_of, caplog, count: str) -> None:
    plugin.write(f"""
        class Miscounting(StorageBackend):
            def contains(self, keys, *, deadline): return {count}
            def load_into(self, keys, outs, *, deadline): return [LoadResult.MISS for _ in keys]
            def store(self, items, *, deadline): pass
            def delete(self, keys, *, deadline): return 0
            def ping(self, *, deadline): pass
            def close(self): pass

        @hookimpl
        def lmcache_storage_backends():
            yield StorageBackendSpec(schemes=("acme",), options=None, build=lambda *_: Miscounting())
    """)
    engine = lmcache_of(remote_url="lmcore+acme://anywhere")

    assert (engine.lookup(), engine.retrieve()) == (0, 0)
    assert any("(acme://anywhere): contains raised " in line for line in caplog.messages)


def test_retrieving_ends_at_a_chunk_that_is_gone(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=f"lmcore+{redis_server.url}")
    engine.store()
    with redis_server.client() as client:
        keys = sorted(client.keys("*@256@*"))
        client.delete(*keys)

    assert (len(keys) >= CHUNKS, engine.lookup(), engine.retrieve()) == (True, 0, 0)


@pytest.mark.parametrize("offset", [3, 70, 127, 128, 4000])
def test_a_damaged_value_is_a_miss_and_is_deleted(lmcache_of, tmp_path: Path, offset: int) -> None:
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    engine.store()
    for path in files(tmp_path / "kv"):
        spoil(path, path.stat().st_size - HEADER_BYTES - PAYLOAD_BYTES + offset)

    assert engine.lookup() == 1000  # the store has them, and does not look inside
    assert engine.retrieve() == 0
    wait_until(lambda: engine.lookup() == 0)


def test_one_damaged_value_costs_nothing_before_it(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=f"lmcore+{redis_server.url}")
    engine.store()
    keys = [key for _, _, key in engine.engine.token_database.process_tokens(tokens=engine.tokens)]
    with redis_server.client() as client:
        third = engine.remote.connection.getWrappedConnector()._mapper.map(keys[2])
        (name,) = [key for key in client.keys("*") if third.digest.hex() in key.decode() or third.digest in key]
        client.setrange(name, 5000, b"damage")

    assert engine.retrieve() == 512


def test_a_frozen_redis_answers_by_the_deadline_and_then_costs_nothing(lmcache_of, redis_server) -> None:
    engine = lmcache_of(
        remote_url=f"lmcore+{redis_server.url}", blocking_timeout_secs=3, extra_config={"ping_interval": 60}
    )
    engine.store()
    redis_server.pause()
    try:
        started = time.monotonic()
        assert engine.lookup() == 0
        assert time.monotonic() - started < 15.0
        started = time.monotonic()
        assert engine.lookup() == 0  # the breaker is open
        assert time.monotonic() - started < 2.5  # it waits for no deadline
        engine.engine.store(torch.tensor(engine.tokens), slot_mapping=torch.arange(1000), kvcaches=engine.kv.layers)
    finally:
        redis_server.resume()
    wait_until(lambda: not engine.remote.put_tasks)
    wait_until(lambda: engine.lookup() == 1000)
    wait_until(lambda: engine.retrieve() == 1000)


def test_redis_frozen_between_lookup_and_retrieve_delivers_nothing_by_the_deadline(lmcache_of, redis_server) -> None:
    engine = lmcache_of(
        remote_url=f"lmcore+{redis_server.url}", blocking_timeout_secs=1, extra_config={"ping_interval": 60}
    )
    engine.store()
    keys = [key for _, _, key in engine.engine.token_database.process_tokens(tokens=engine.tokens)]
    redis_server.pause()
    try:
        started = time.monotonic()
        values = engine.remote.batched_get_blocking(keys)
        assert (values, time.monotonic() - started < 5.0) == ([None] * CHUNKS, True)
    finally:
        redis_server.resume()


def test_no_memory_of_lmcache_is_lost_in_an_outage(lmcache_of, redis_server) -> None:
    engine = lmcache_of(
        remote_url=f"lmcore+{redis_server.url}", blocking_timeout_secs=1, extra_config={"ping_interval": 60}
    )
    engine.store()
    keys = [key for _, _, key in engine.engine.token_database.process_tokens(tokens=engine.tokens)]
    redis_server.pause()
    caller = threading.Thread(target=engine.remote.batched_get_blocking, args=(keys,))
    caller.start()
    caller.join()
    redis_server.resume()  # the workers' answers come now, to nobody

    allocator = engine.storage.local_cpu_backend.memory_allocator
    wait_until(lambda: engine.retrieve() == 1000)
    wait_until(lambda: _free(allocator) == _free_when_empty(engine))


def test_memory_that_lmcache_has_not_is_a_miss_that_is_said(lmcache_of, tmp_path: Path, caplog) -> None:
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    engine.store()
    like = engine.remote.connection.getWrappedConnector()
    local, held = engine.storage.local_cpu_backend, []
    while (value := local.allocate(like.meta_shapes, like.meta_dtypes, like.meta_fmt, busy_loop=False)) is not None:
        held.append(value)

    assert (engine.lookup(), engine.retrieve()) == (1000, 0)
    (line,) = [line for line in caplog.messages if "no memory left" in line]
    assert line == (
        "lmcore: lmcache has no memory left for a chunk of 98304 bytes, so that it is a miss; "
        "raise max_local_cpu_size (at most one such line in 10 s)"
    )
    for value in held:
        value.ref_count_down()
    assert engine.retrieve() == 1000


def _free(allocator: object) -> int:
    return allocator.pin_allocator.address_manager.get_free_size()  # type: ignore[attr-defined]


def _free_when_empty(engine: object) -> int:
    return engine.storage.local_cpu_backend.memory_allocator.pin_allocator.address_manager._size  # type: ignore[attr-defined]


def test_a_killed_redis_is_left_and_found_again(lmcache_of, redis_server) -> None:
    engine = lmcache_of(remote_url=f"lmcore+{redis_server.url}", extra_config={"ping_interval": 60})
    engine.store()
    redis_server.kill()
    assert engine.lookup() == 0
    engine.store()
    redis_server.start()

    def stored() -> bool:
        engine.store()
        return engine.lookup() == 1000

    wait_until(stored)
    assert engine.retrieve() == 1000


def test_lmcaches_own_check_sees_that_redis_is_away(lmcache_of, redis_server) -> None:
    from lmcache_plugins.upstream import uninstall

    engine = lmcache_of(remote_url=f"lmcore+{redis_server.url}")
    uninstall()
    check = next(one for one in engine.monitor.get_health_checks() if type(one).__name__ == "RemoteBackendHealthCheck")
    assert check.check()
    redis_server.kill()

    assert not check.check()


def test_a_ping_has_lmcaches_codes(lmcache_of, redis_server) -> None:
    import asyncio

    engine = lmcache_of(
        remote_url=f"lmcore+{redis_server.url}", blocking_timeout_secs=1, extra_config={"ping_interval": 60}
    )

    def ping() -> int:
        return asyncio.run_coroutine_threadsafe(engine.remote.connection.ping(), engine.remote.loop).result(10)

    assert ping() == 0
    redis_server.pause()
    try:
        assert ping() == -1
    finally:
        redis_server.resume()
    redis_server.kill()
    assert ping() == -2


def test_a_removed_chunk_is_gone(lmcache_of, tmp_path: Path) -> None:
    engine = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv")
    engine.store()
    keys = [key for _, _, key in engine.engine.token_database.process_tokens(tokens=engine.tokens)]

    assert [engine.remote.remove(key) for key in (keys[0], keys[0])] == [True, False]
    assert engine.lookup() == 0


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"use_layerwise": True}, "use_layerwise: lmcore keeps whole chunks; set it to false, or use another remote"),
        (
            {"remote_serde": "cachegen"},
            "remote_serde: lmcore keeps chunks as they are; set it to naive, not cachegen",
        ),
        ({"blocking_timeout_secs": 0}, "blocking_timeout_secs: must be above 0, got 0"),
        (
            {"remote_url": "lmcore+nope://user:secret@host"},
            (
                "command line: remote_url: no loaded plugin serves nope:// "
                "(known: disk, file, redis, redis+unix, rediss, unix, valkey, valkeys)"
            ),
        ),
        (
            {"remote_url": None, "remote_storage_plugins": ["lmcore"]},
            (
                "extra_config.remote_storage_plugin.lmcore.url: is not set; give the address of a store, such as "
                "redis://host:6379"
            ),
        ),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(lmcache_of, caplog, config, sentence) -> None:
    import asyncio

    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.storage_backend.connector import CreateConnector

    keys = {"remote_url": "lmcore+redis://localhost:1", **config}
    plugin = (keys.get("remote_storage_plugins") or [None])[0]
    with pytest.raises(Exception) as caught:
        CreateConnector(
            keys["remote_url"] or f"plugin://{plugin}",
            asyncio.new_event_loop(),
            None,
            LMCacheEngineConfig.from_defaults(**keys),
            None,
            plugin_name=plugin,
        )

    assert str(caught.value) == sentence


def test_keys_cannot_be_listed(lmcache_of, tmp_path: Path) -> None:
    import asyncio

    connection = lmcache_of(remote_url=f"lmcore+file://{tmp_path}/kv").remote.connection
    with pytest.raises(NotImplementedError) as caught:
        asyncio.run(connection.getWrappedConnector().list())

    assert str(caught.value) == "lmcore: a store keeps digests of keys and cannot list the keys"
