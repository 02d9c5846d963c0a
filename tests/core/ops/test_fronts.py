"""Which servers a configuration brings, over a whole cache."""

import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lmcache_core import CacheManager, KVLayout

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
Make = Callable[..., CacheManager]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.chdir(tmp_path)
    made: list[CacheManager] = []

    def build(rank: int = 0, **overrides: object) -> CacheManager:
        small = {"chunk_size": 4, "max_local_cpu_size": 0.001, **overrides}
        made.append(
            CacheManager.from_config(
                overrides=small, environ={}, layout=LAYOUT, model_name="m", world_size=rank + 1, rank=rank
            )
        )
        made[-1].start()
        return made[-1]

    yield build
    for one in made:
        one.stop()


def check(cache: CacheManager, service: str) -> int:
    assert cache.grpc is not None
    with grpc.insecure_channel(str(cache.grpc.address)) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_by_default_no_port_is_opened(make: Make) -> None:
    one = make()

    assert (one.http, one.grpc) == (None, None)


def test_the_grpc_service_knows_every_tier_by_name(make: Make, tmp_path: Path) -> None:
    one = make(remote_url=f"file://{tmp_path}/kv", internal_grpc_port=0)

    assert [check(one, name) for name in ("", "livez", "readyz", "LocalCPUBackend", "RemoteBackend")] == [1, 1, 1, 1, 1]


def test_the_grpc_service_follows_a_store_that_is_not_there(make: Make, tmp_path: Path) -> None:
    one = make(remote_url=f"file://{tmp_path}/no/mount", internal_grpc_port=0)

    assert [check(one, name) for name in ("", "livez", "readyz", "LocalCPUBackend", "RemoteBackend")] == [2, 1, 1, 1, 2]


def test_readiness_healthy_reaches_both_servers(make: Make, tmp_path: Path) -> None:
    one = make(
        remote_url=f"file://{tmp_path}/no/mount",
        readiness="healthy",
        internal_grpc_port=0,
        internal_api_server_enabled=True,
        internal_api_server_port_start=0,
    )
    assert one.http is not None
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{one.http.address}/readyz", timeout=5)
    caught.value.close()

    assert (caught.value.code, check(one, "readyz")) == (503, 2)


def test_a_rank_adds_to_the_port(make: Make) -> None:
    port = free_port()
    one = make(rank=1, internal_grpc_port=port - 1)

    assert one.grpc is not None
    assert one.grpc.address == f"127.0.0.1:{port}"


def test_after_the_stop_both_ports_are_free(make: Make) -> None:
    one = make(internal_grpc_port=0, internal_api_server_enabled=True, internal_api_server_port_start=0)
    assert one.http is not None
    assert one.grpc is not None
    ports = [int(str(address).rsplit(":", 1)[1]) for address in (one.http.address, one.grpc.address)]
    one.stop()

    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_push_checks_that_no_report_can_reach_are_a_warning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    make(extra_config={"push": {"checks": [{"name": "gpu-errors", "ttl_s": 60.0}]}})

    assert (
        "health checks 'gpu-errors' take reports over HTTP and no report can arrive: set "
        "internal_api_server_enabled = true"
    ) in caplog.messages
