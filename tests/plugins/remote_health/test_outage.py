"""Outages of a real Valkey under a whole cache; each test is a defect that a peer has or had."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, CheckReport, HealthReport, HealthState, KVLayout

pytestmark = pytest.mark.timing  # deadlines of a fraction of a second, which a busy machine misses too

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS = list(range(16))
INTERVAL_S = 0.5
PING_TIMEOUT_S = 0.3
BACKEND = {"backend": "RemoteBackend"}

MakeCache = Callable[..., CacheManager]


def some_kv() -> torch.Tensor:
    return torch.arange(2 * 2 * 16 * 8, dtype=torch.float32).reshape(LAYOUT.kv_shape(16))


@pytest.fixture
def cache(redis_server: RedisServer) -> Iterator[MakeCache]:
    """Makes and starts caches with the server as their remote; a frozen server is let go at the end."""
    managers: list[CacheManager] = []

    def make(url: str = "", extra_config: dict[str, object] | None = None, **overrides: object) -> CacheManager:
        health = {
            "ping_interval": INTERVAL_S,
            "ping_timeout": PING_TIMEOUT_S,
            "waiting_time_for_recovery": 0.5,
            **(extra_config or {}),
        }
        managers.append(
            CacheManager.from_config(
                overrides={
                    "chunk_size": 4,
                    "max_local_cpu_size": 0.001,
                    "blocking_timeout_secs": 1.0,
                    "remote_url": url or redis_server.url,
                    "extra_config": health,
                    **overrides,
                },
                environ={},
                layout=LAYOUT,
                model_name="m",
            )
        )
        managers[-1].start()
        return managers[-1]

    yield make
    for one in managers:
        one.stop()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))


def await_health(one: CacheManager, wanted: Callable[[HealthReport], bool], timeout_s: float = 15.0) -> float:
    """Poll as an operator would; give the seconds it took."""
    started = time.monotonic()
    while not wanted(one.health.report()):
        assert time.monotonic() - started < timeout_s, one.health.report()
        time.sleep(0.01)
    return time.monotonic() - started


def is_down(report: HealthReport) -> bool:
    return report.state is HealthState.DOWN


def of_remote(report: HealthReport) -> CheckReport:
    """The first store's own check."""
    return next(check for check in report.checks if check.plugin == "remote_health")


def is_up(report: HealthReport) -> bool:
    return report.state is HealthState.UP


def is_degraded(report: HealthReport) -> bool:
    return report.state is HealthState.DEGRADED


def sample(one: CacheManager, name: str) -> float | None:
    return one.metrics.registry.get_sample_value(f"lmcache:{name}", BACKEND)


def test_a_killed_server_is_unhealthy_within_two_intervals(cache: MakeCache, redis_server: RedisServer) -> None:
    """With a peer Redis is never pinged: still healthy 60 s after it was killed."""
    one = cache()
    redis_server.kill()
    took_s = await_health(one, is_down)
    healthy = one.is_healthy()
    redis_server.start()

    assert took_s < 2 * INTERVAL_S + PING_TIMEOUT_S + 0.5
    assert not healthy


def test_a_frozen_server_is_unhealthy_and_the_code_says_timeout(cache: MakeCache, redis_server: RedisServer) -> None:
    one = cache()
    redis_server.pause()
    took_s = await_health(one, is_down)
    codes = {sample(one, "remote_ping_error_code") for _ in range(20)}

    assert took_s < 2 * INTERVAL_S + PING_TIMEOUT_S + 0.5
    assert codes == {-1.0}


def test_a_refused_connection_has_the_other_code(cache: MakeCache, redis_server: RedisServer) -> None:
    one = cache()
    redis_server.kill()
    await_health(one, is_down)
    code = sample(one, "remote_ping_error_code")
    redis_server.start()

    assert code == -2.0


def test_a_thawed_server_is_used_again_without_a_restart(cache: MakeCache, redis_server: RedisServer) -> None:
    """A peer's breaker stayed open for 45 hours after an outage of less than a minute."""
    one = cache()
    redis_server.pause()
    await_health(one, is_down)
    redis_server.resume()
    took_s = await_health(one, is_up)
    one.engine.store(TOKENS, some_kv())
    one.storage.flush()
    one.storage.local.clear()

    assert took_s < 0.5 + 2 * INTERVAL_S + 1.0
    assert one.engine.lookup(TOKENS) == 16


def test_a_restarted_server_is_used_again(cache: MakeCache, redis_server: RedisServer) -> None:
    """A peer never rebuilds a dead connection that is not None."""
    one = cache()
    redis_server.kill()
    await_health(one, is_down)
    redis_server.start()
    await_health(one, is_up)


def test_a_server_that_is_away_at_start_is_found_when_it_comes(cache: MakeCache, redis_server: RedisServer) -> None:
    redis_server.kill()
    one = cache()
    healthy_at_start = one.is_healthy()
    redis_server.start()
    await_health(one, is_up)

    assert not healthy_at_start


def test_live_errors_are_judged_at_once_not_at_the_next_interval(cache: MakeCache, redis_server: RedisServer) -> None:
    one = cache(extra_config={"ping_interval": 3600.0})
    redis_server.kill()
    one.storage.local.clear()
    one.engine.lookup(TOKENS)
    took_s = await_health(one, is_down)
    redis_server.start()

    assert took_s < PING_TIMEOUT_S + 1.0


def test_a_full_server_degrades_writes_only(redis_server: RedisServer, cache: MakeCache) -> None:
    one = cache()
    with redis_server.client() as client:
        client.config_set("maxmemory", "1")
    await_health(one, is_degraded)
    healthy, report = one.is_healthy(), one.health.report()
    with redis_server.client() as client:
        client.config_set("maxmemory", "0")
    await_health(one, is_up)

    assert healthy
    assert of_remote(report).state is HealthState.DEGRADED
    assert "takes no writes, reads go on" in report.reason


def test_no_probe_key_stays_behind(cache: MakeCache, redis_server: RedisServer) -> None:
    """A peer's probe writes one fixed key that all instances share, and never deletes it."""
    one, other = cache(), cache()
    for manager in (one, other):
        manager.health.wake()
    time.sleep(3 * INTERVAL_S)
    states = {one.health.report().state, other.health.report().state}
    one.stop()
    other.stop()
    with redis_server.client() as client:
        keys = [key for key in client.scan_iter() if b"probe" in key]

    assert states == {HealthState.UP}
    assert keys == []


def test_local_cpu_serves_on_and_leaves_nothing_behind(cache: MakeCache, redis_server: RedisServer) -> None:
    """In a peer the temporary entries are never cleared, still served, and can never be evicted."""
    one = cache(extra_config={"fallback_policy": "local_cpu"}, local_cpu=False)
    redis_server.pause()
    await_health(one, is_degraded)
    one.engine.store(TOKENS, some_kv())
    out = torch.zeros(LAYOUT.kv_shape(16))
    during = (
        one.is_healthy(),
        one.engine.lookup(TOKENS),
        bool(one.engine.retrieve(TOKENS, out).all()),
        dict(one.storage.bypassed()),
        sample(one, "backend_bypassed"),
    )
    redis_server.resume()
    await_health(one, is_up)
    one.storage.flush()

    assert during == (
        True,
        16,
        True,
        {"RemoteBackend": (f"check:RemoteBackendHealthCheck({redis_server.url})",)},
        1.0,
    )
    assert torch.equal(out, some_kv())
    assert (one.storage.local.chunks, one.storage.local.arena.used_bytes, one.storage.local.use_hot) == (0, 0, False)
    assert (dict(one.storage.bypassed()), sample(one, "backend_bypassed")) == ({}, 0.0)


def test_local_cpu_waits_for_no_deadline_once_the_remote_is_left_out(
    cache: MakeCache, redis_server: RedisServer
) -> None:
    one = cache(extra_config={"fallback_policy": "local_cpu"})
    redis_server.pause()
    await_health(one, is_degraded)
    started = time.perf_counter()
    for _ in range(20):
        one.engine.lookup(TOKENS)

    assert time.perf_counter() - started < 0.5


def test_an_operators_bypass_survives_the_recovery(cache: MakeCache, redis_server: RedisServer) -> None:
    """In a peer the monitor's recovery removes it."""
    one = cache(extra_config={"fallback_policy": "local_cpu"})
    redis_server.pause()
    await_health(one, lambda report: of_remote(report).engaged)
    one.storage.set_backend_bypass("RemoteBackend", True, owner="operator:alice", reason="repair")
    await_health(one, lambda report: of_remote(report).state is HealthState.MAINTENANCE)
    redis_server.resume()
    await_health(one, lambda report: not of_remote(report).engaged)

    assert one.storage.bypassed() == {"RemoteBackend": ("operator:alice",)}
    assert one.health.report().reason == "backend 'RemoteBackend' is bypassed by operator:alice"
    assert of_remote(one.health.report()).reason.startswith(
        "left out by operator:alice (repair); the check itself is up"
    )


def test_one_remote_down_leaves_the_other_serving(cache: MakeCache, redis_server: RedisServer) -> None:
    with RedisServer() as second:
        one = cache(extra_config={"fallback_policy": "local_cpu"}, remotes=[{"name": "second", "url": second.url}])
        redis_server.pause()
        await_health(one, is_degraded)
        one.engine.store(TOKENS, some_kv())
        one.storage.flush()
        one.storage.local.clear()
        found = one.engine.lookup(TOKENS)
        redis_server.resume()
        one.stop()

    assert found == 16


def test_each_remote_has_its_own_parameters(cache: MakeCache) -> None:
    """In a peer every remote gets the same configuration object."""
    with RedisServer() as second:
        one = cache(
            remotes=[
                {
                    "name": "second",
                    "url": second.url,
                    "extra_config": {"ping_interval": 77.0, "fallback_policy": "local_cpu"},
                }
            ]
        )
        found = one.health.report().checks
        checks = {check.backend: check for check in found if check.plugin == "remote_health"}
        one.stop()

    assert checks["RemoteBackend"].policy == "recompute"
    assert checks["RemoteBackend-second"].policy == "local_cpu"
    assert 60 < checks["RemoteBackend-second"].next_run_s <= 77  # a tenth may be jitter


def test_the_health_page_says_why_within_a_second(cache: MakeCache, redis_server: RedisServer) -> None:
    """A peer's page is 200 whenever its engine object exists."""
    one = cache(internal_api_server_enabled=True, internal_api_server_port_start=0)
    assert one.http is not None
    redis_server.pause()
    await_health(one, is_down)
    started = time.perf_counter()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{one.http.address}/health", timeout=5)
    with caught.value as answer:
        body = json.load(answer)
    elapsed_s = time.perf_counter() - started

    assert caught.value.code == 503
    assert elapsed_s < 1.0
    assert body["reason"].startswith(f"check 'RemoteBackendHealthCheck({redis_server.url})' fails: RemoteBackend ")
    assert "no answer before" in body["reason"]


def test_a_password_is_nowhere(caplog: pytest.LogCaptureFixture, cache: MakeCache, redis_server: RedisServer) -> None:
    """A peer's check is named by the whole address, credentials included."""
    secret = "planted-canary"
    with RedisServer(password=secret) as guarded:
        one = cache(url=guarded.url, internal_api_server_enabled=True, internal_api_server_port_start=0)
        assert one.http is not None
        up = repr(one.health.report())
        pages = [
            urllib.request.urlopen(f"{one.http.address}{path}").read().decode() for path in ("/health", "/metrics")
        ]
        guarded.pause()
        await_health(one, is_down)
        down = repr(one.health.report())
        guarded.resume()
        one.stop()

    assert secret not in "".join([up, down, *pages, caplog.text])
