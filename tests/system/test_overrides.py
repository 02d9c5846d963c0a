"""A whole cache whose operator takes its store out: what requests notice, and what a restart remembers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, HealthState, KVLayout
from lmcache_core.cli.main import main

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS = list(range(16))


def cache_on(folder: Path, url: str | None = None, **overrides: object) -> CacheManager:
    values: dict[str, object] = {
        "chunk_size": 4,
        "max_local_cpu_size": 0.001,
        "remote_url": url or f"file://{folder}/kv",
        "health_state_dir": str(folder / "state"),
        "blocking_timeout_secs": 0.5,
        "extra_config": {"ping_interval": 0.3, "ping_timeout": 0.2},
        **overrides,
    }
    return CacheManager.from_config(overrides=values, environ={}, layout=LAYOUT, model_name="m")


def kv() -> torch.Tensor:
    return torch.arange(2 * 2 * 16 * 8, dtype=torch.float32).reshape(LAYOUT.kv_shape(16))


def until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _own_runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def redis_cache(tmp_path: Path) -> Iterator[tuple[RedisServer, CacheManager]]:
    with RedisServer() as server, cache_on(tmp_path, server.url) as cache:
        yield server, cache
        server.resume()


def test_an_override_outlives_a_restart(tmp_path: Path) -> None:
    with cache_on(tmp_path) as first:
        first.engine.store(TOKENS, kv())
        first.storage.flush()
        first.overrides.add("RemoteBackend", owner="alice", reason="kernel update", ttl_s=600)
    with cache_on(tmp_path) as second:
        held = second.storage.bypassed()
        hit_tokens = second.engine.lookup(TOKENS)
        second.overrides.remove("RemoteBackend", owner="alice")

        assert (held, hit_tokens) == ({"RemoteBackend": ("operator:alice",)}, 0)
        assert second.engine.lookup(TOKENS) == 16


def test_it_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.system.test_overrides import cache_on
with cache_on(Path({str(tmp_path)!r})) as cache:
    cache.overrides.add("RemoteBackend", owner="alice", reason="kernel update", ttl_s=600)
    print("ready", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    with cache_on(tmp_path) as cache:
        assert [override.owner for override in cache.overrides.active()] == ["alice"]


def test_one_that_ran_out_while_nothing_ran_is_not_in_force(tmp_path: Path) -> None:
    with cache_on(tmp_path) as first:
        first.overrides.add("RemoteBackend", owner="alice", reason="short", ttl_s=1)
    time.sleep(1.1)
    with cache_on(tmp_path) as second:
        assert second.storage.bypassed() == {}
        assert second.is_healthy()
    events = [json.loads(line)["event"] for line in (tmp_path / "state" / "cache.audit.jsonl").read_text().splitlines()]
    assert events[0] == "added"
    assert events[-1] == "expired"


@pytest.mark.timing
def test_one_ends_in_time_while_the_cache_runs(tmp_path: Path) -> None:
    with cache_on(tmp_path) as cache:
        cache.overrides.add("RemoteBackend", owner="alice", reason="short", ttl_s=1)
        started_s = time.monotonic()
        until(lambda: not cache.storage.bypassed())

        assert 0.9 < time.monotonic() - started_s < 5
        until(lambda: cache.health.report().state is HealthState.UP)


def test_a_damaged_state_file_costs_the_overrides_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cache.overrides.json").write_bytes(os.urandom(1000))
    with cache_on(tmp_path) as cache:
        assert cache.is_healthy()
        assert cache.engine.store(TOKENS, kv()) == 16
        assert cache.metrics.registry.get_sample_value("lmcache:health_file_errors_total") == 1


def test_a_store_in_maintenance_that_goes_down_stops_nothing(redis_cache: tuple[RedisServer, CacheManager]) -> None:
    """With the policy recompute its check would else close the gate for all."""
    server, cache = redis_cache
    cache.engine.store(TOKENS, kv())
    cache.overrides.add("RemoteBackend", owner="alice", reason="kernel update", ttl_s=600)
    until(lambda: cache.health.report().checks[-1].state is HealthState.MAINTENANCE)
    server.pause()
    until(lambda: any("the check itself is down" in check.reason for check in cache.health.report().checks))

    assert cache.is_healthy()
    assert cache.engine.lookup(TOKENS) == 16


def test_a_recovery_leaves_the_override_in_force(redis_cache: tuple[RedisServer, CacheManager]) -> None:
    server, cache = redis_cache
    server.pause()
    until(lambda: not cache.is_healthy())
    cache.overrides.add("RemoteBackend", owner="alice", reason="kernel update", ttl_s=600)
    until(cache.is_healthy)
    server.resume()
    until(lambda: any("the check itself is up" in check.reason for check in cache.health.report().checks))

    assert cache.storage.bypassed() == {"RemoteBackend": ("operator:alice",)}


def test_history_and_explanation_tell_an_outage_from_its_start_to_its_end(
    redis_cache: tuple[RedisServer, CacheManager],
) -> None:
    server, cache = redis_cache
    server.pause()
    for _ in range(2):
        cache.engine.lookup([7] * 8)
    until(lambda: cache.health.report().state is HealthState.DOWN)
    (backend,) = cache.health.report().backends
    server.resume()

    def changes() -> list[tuple[str, str, str]]:
        return [(one.kind, one.before, one.after) for one in cache.oversight.history.latest()]

    until(lambda: not {("system", "down", "up"), ("system", "degraded", "up")}.isdisjoint(changes()))
    assert backend.breaker.state == "open"
    assert backend.breaker.reason == "a call got no answer before its deadline"
    assert backend.last_failure is not None
    assert backend.last_failure.call == "load"
    assert ("breaker", "closed", "open") in changes()
    assert ("system", "up", "down") in changes()


def test_several_ranks_have_files_of_their_own(tmp_path: Path) -> None:
    made = [
        CacheManager.from_config(
            overrides={
                "chunk_size": 4,
                "max_local_cpu_size": 0.001,
                "remote_url": f"file://{tmp_path}/kv",
                "health_state_dir": str(tmp_path / "state"),
                "health_history_file": str(tmp_path / "history.jsonl"),
            },
            environ={},
            layout=LAYOUT,
            model_name="m",
            world_size=2,
            rank=rank,
        )
        for rank in range(2)
    ]
    for cache in made:
        with cache:
            cache.overrides.add("RemoteBackend", owner="alice", reason="x", ttl_s=600)
            assert cache.overrides.persistent
    names = sorted(path.name for path in tmp_path.rglob("*") if "rank-" in path.name and path.is_file())

    assert [name for name in names if not name.endswith(".lock")] == [
        "cache.rank-0.audit.jsonl",
        "cache.rank-0.overrides.json",
        "cache.rank-1.audit.jsonl",
        "cache.rank-1.overrides.json",
        "history.rank-0.jsonl",
        "history.rank-1.jsonl",
    ]


def test_why_names_the_frozen_store_its_evidence_and_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {"internal_api_server_enabled": True, "internal_api_server_port_start": 0}
    with RedisServer() as server, cache_on(tmp_path, server.url, **pages) as cache:
        server.pause()
        cache.engine.lookup([7] * 8)
        until(lambda: cache.health.report().state is HealthState.DOWN)
        assert cache.http is not None
        code = main(["health", "why", "RemoteBackend", "--url", str(cache.http.address)])
        server.resume()
    printed = capsys.readouterr().out

    assert code == 1
    assert printed.startswith("RemoteBackend (redis://127.0.0.1:")
    for part in (
        ": DOWN, gets nothing, as everything is recomputed\n",
        "\n    evidence  opened once, last because a call got no answer before its deadline\n",
        "\n    rule      opens at the first call that gets no answer in time",
        "\n    next      ",
        "RemoteBackendHealthCheck(redis://127.0.0.1:",
        "ping_code -1",
        "policy recompute",
    ):
        assert part in printed
