import logging
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lmcache_core import BackendError, CacheManager, ConfigError, HealthState, KVLayout
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS = list(range(16))


def manager(*, layout: KVLayout = LAYOUT, **overrides: object) -> CacheManager:
    small = {"chunk_size": 4, "max_local_cpu_size": 0.001}
    return CacheManager.from_config(overrides={**small, **overrides}, environ={}, layout=layout, model_name="m")


def some_kv() -> torch.Tensor:
    return torch.arange(2 * 2 * 16 * 8, dtype=torch.float32).reshape(LAYOUT.kv_shape(16))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No lmcache.toml of the checkout is picked up."""
    monkeypatch.chdir(tmp_path)
    return None


def test_second_process_finds_what_the_first_stored(tmp_path: Path) -> None:
    with manager(remote_url=f"file://{tmp_path}/kv") as first:
        first.engine.store(TOKENS, some_kv())
    out = torch.zeros(LAYOUT.kv_shape(16))

    with manager(remote_url=f"file://{tmp_path}/kv") as second:
        assert second.engine.lookup(TOKENS) == 16
        assert second.engine.retrieve(TOKENS, out).all()

    assert torch.equal(out, some_kv())


def test_disk_tier_survives_a_restart(tmp_path: Path) -> None:
    disk = {"local_disk": str(tmp_path / "disk"), "max_local_disk_size": 0.01}
    with manager(**disk) as first:
        first.engine.store(TOKENS, some_kv())

    with manager(**disk) as second:
        assert second.engine.lookup(TOKENS) == 16


def test_clear_empties_the_disk_tier(tmp_path: Path) -> None:
    with manager(local_disk=str(tmp_path / "disk"), max_local_disk_size=0.01) as cache:
        cache.engine.store(TOKENS, some_kv())
        cache.storage.flush()

        report = {cleared.backend: cleared.chunks for cleared in cache.engine.clear()}

        assert report == {"LocalCPUBackend": 4, "LocalDiskBackend": 4}
        assert cache.engine.lookup(TOKENS) == 0


def test_eviction_from_the_disk_tier_is_counted(tmp_path: Path) -> None:
    two_chunks_gib = 1400 / (1 << 30)
    with manager(local_disk=str(tmp_path / "disk"), max_local_disk_size=two_chunks_gib) as cache:
        cache.engine.store(TOKENS, some_kv())
        cache.storage.flush()
        cache.engine.clear()

        evicted = cache.metrics.registry.get_sample_value(
            "lmcache:evicted_chunks_total", {"backend": "LocalDiskBackend"}
        )

    assert evicted == 2


def test_cache_is_healthy_once_started(tmp_path: Path) -> None:
    with manager(remote_url=f"file://{tmp_path}/kv") as cache:
        assert cache.is_healthy()
        assert cache.health.report().state is HealthState.UP


def test_cache_is_not_healthy_before_it_is_started() -> None:
    assert not manager(remote_url="file:///nowhere/at/all").is_healthy()


def test_cache_is_not_healthy_after_it_is_stopped() -> None:
    with manager() as cache:
        pass

    assert not cache.is_healthy()
    assert cache.engine.lookup(TOKENS) == 0


def test_store_that_is_gone_at_start_is_unhealthy_and_named(tmp_path: Path) -> None:
    with manager(remote_url=f"file://{tmp_path}/no/such/mount") as cache:
        report = cache.health.report()

    assert report.state is HealthState.DOWN
    assert str(tmp_path) in report.reason


def test_start_does_not_raise_when_a_store_is_gone(tmp_path: Path) -> None:
    with manager(remote_url=f"file://{tmp_path}/no/such/mount") as cache:
        assert cache.engine.store(TOKENS, some_kv()) == 0


def test_local_cpu_policy_serves_from_tier_0_while_the_store_is_gone(tmp_path: Path) -> None:
    extra = {"fallback_policy": "local_cpu"}
    with manager(remote_url=f"file://{tmp_path}/no/mount", local_cpu=False, extra_config=extra) as cache:
        cache.engine.store(TOKENS, some_kv())

        assert cache.storage.bypassed() == {
            "RemoteBackend": ("check:RemoteBackendHealthCheck(" + cache.tiers[0].url + ")",)
        }
        assert cache.engine.lookup(TOKENS) == 16


def test_each_remote_has_keys_of_its_own(tmp_path: Path) -> None:
    remotes = [
        {"name": "a", "url": f"file://{tmp_path}/a", "extra_config": {"fallback_policy": "local_cpu"}},
        {"name": "b", "url": f"file://{tmp_path}/b"},
    ]
    cache = manager(remotes=remotes, extra_config={"ping_timeout": 2.0})

    assert [(tier.name, tier.options.fallback_policy, tier.options.ping_timeout) for tier in cache.tiers] == [
        ("RemoteBackend-a", "local_cpu", 2.0),
        ("RemoteBackend-b", "recompute", 2.0),
    ]


def test_memory_smaller_than_a_chunk_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError) as caught:
        manager(max_local_cpu_size=0.0000001)

    assert str(caught.value) == (
        "max_local_cpu_size: 1e-07 GiB is less than one chunk of 640 bytes; raise it or lower chunk_size"
    )


def test_no_memory_leaves_a_cache_that_only_recomputes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_memory(capacity_bytes: int, *, shared: bool) -> Arena:
        if capacity_bytes != ALIGNMENT_BYTES:
            raise MemoryError("out of memory")
        return Arena(capacity_bytes, shared=shared)

    monkeypatch.setattr("lmcache_core.app.host.Arena", no_memory)
    with manager(remote_url=f"file://{tmp_path}/kv") as cache:
        assert cache.init_failed_reason == "MemoryError: out of memory"
        assert not cache.is_healthy()
        assert [cache.engine.store(TOKENS, some_kv()), cache.engine.lookup(TOKENS)] == [0, 0]
        assert not cache.engine.retrieve(TOKENS, torch.zeros(LAYOUT.kv_shape(16))).any()
        assert "out of memory" in cache.health.report().reason


def test_health_page_answers_over_http(tmp_path: Path) -> None:
    with manager(
        remote_url=f"file://{tmp_path}/kv", internal_api_server_enabled=True, internal_api_server_port_start=0
    ) as cache:
        assert cache.http is not None
        with urllib.request.urlopen(f"{cache.http.address}/health", timeout=5) as answer:
            assert (answer.status, b'"healthy":true' in answer.read().replace(b" ", b"")) == (200, True)
        with urllib.request.urlopen(f"{cache.http.address}/metrics", timeout=5) as answer:
            assert b"lmcache:is_healthy 1.0" in answer.read()


def test_unhealthy_is_503(tmp_path: Path) -> None:
    with manager(
        remote_url=f"file://{tmp_path}/no/mount", internal_api_server_enabled=True, internal_api_server_port_start=0
    ) as cache:
        assert cache.http is not None
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{cache.http.address}/health", timeout=5)

    assert caught.value.code == 503
    caught.value.close()


def test_stop_leaves_no_thread_of_ours() -> None:
    before = set(threading.enumerate())
    with manager():
        pass

    left = [thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()]
    assert [name for name in left if "monitor" in name or "sweeper" in name or "http" in name] == []


def test_log_level_of_the_configuration_is_used() -> None:
    manager(log_level="error")
    level = logging.getLogger("lmcache_core").level
    logging.getLogger("lmcache_core").setLevel(logging.NOTSET)

    assert level == logging.ERROR


def test_importing_the_package_imports_neither_torch_nor_redis() -> None:
    code = (
        "import lmcache_core.loading, sys; print([m for m in ('torch', 'redis', 'transformers') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == "[]"


def test_backend_error_is_public() -> None:
    assert issubclass(BackendError, Exception)


def test_each_rank_has_a_disk_folder_of_its_own(tmp_path: Path) -> None:
    overrides = {
        "chunk_size": 4,
        "max_local_cpu_size": 0.001,
        "local_disk": str(tmp_path),
        "max_local_disk_size": 0.01,
        "log_level": "info",
    }
    ranks = [
        CacheManager.from_config(
            overrides=overrides, environ={}, layout=LAYOUT, model_name="m", world_size=2, rank=rank
        )
        for rank in range(2)
    ]

    assert [cache.tiers[0].url for cache in ranks] == [f"disk://{tmp_path}/rank-0", f"disk://{tmp_path}/rank-1"]


def test_a_remote_may_have_a_tighter_deadline(tmp_path: Path) -> None:
    remotes = [{"name": "a", "url": f"file://{tmp_path}/a", "extra_config": {"call_timeout_secs": 0.5}}]

    assert manager(remotes=remotes).tiers[0].timeout_s == 0.5


def test_fsync_key_reaches_the_disk_store(tmp_path: Path) -> None:
    cache = manager(local_disk=str(tmp_path / "disk"), max_local_disk_size=0.01, local_disk_fsync=True)

    assert cache.tiers[0]._backend._fsync is True  # type: ignore[attr-defined]


def test_instance_is_named_in_its_metrics() -> None:
    cache = manager(lmcache_instance_id="node-7")

    (info,) = [family for family in cache.metrics.registry.collect() if family.name == "lmcache:instance_info"]

    assert info.samples[0].labels["instance_id"] == "node-7"
    assert info.samples[0].labels["model_name"] == "m"
