import logging
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.cache_stage import until
from tests.core.health.tower import SteeredCheck, Watchtower
from tests.memory_store import Rig

from lmcache_core import ConfigError, HealthCheck
from lmcache_core.ops.grpc_server import GrpcHealthServer
from lmcache_core.ops.probes import Probes
from lmcache_core.ops.services import Services

REMOTE = "RemoteBackend-0"


class Line:
    """A health service over a real monitor, and a client of it."""

    def __init__(self, *checks: HealthCheck, host: str = "127.0.0.1", port: int = 0, **how: object) -> None:
        self.tower = Watchtower(Rig(), list(checks), **how)
        services = Services(self.tower.monitor, Probes(self.tower.monitor), self.tower.storage.backend_names())
        self.server = GrpcHealthServer(services, host=host, port=port, threads=self.tower.threads)
        self.server.start()
        self._channel = grpc.insecure_channel(self.server.address or "127.0.0.1:1")
        self.stub = health_pb2_grpc.HealthStub(self._channel)

    def check(self, service: str = "") -> str:
        answer = self.stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    def watch(self, service: str = "") -> "Watcher":
        return Watcher(self.stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60))

    def close(self) -> None:
        self._channel.close()
        self.server.stop()
        self.tower.monitor.stop()
        self.tower.rig.close()


class Watcher:
    """Collects what a stream brings."""

    def __init__(self, stream: grpc.Call) -> None:
        self.stream = stream
        self._got: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for answer in self.stream:
                self._got.put(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
        except grpc.RpcError as error:
            self._got.put(f"ended: {error.code().name}")

    def next(self) -> str:
        return self._got.get(timeout=10)


MakeLine = Callable[..., Line]


@pytest.fixture
def line() -> Iterator[MakeLine]:
    lines: list[Line] = []

    def make(*checks: HealthCheck, **how: object) -> Line:
        lines.append(Line(*checks, **how))  # type: ignore[arg-type]
        return lines[-1]

    yield make
    for one in lines:
        one.close()


def test_check_follows_the_system(line: MakeLine) -> None:
    one = line(SteeredCheck())
    before = one.check()
    one.tower.start()

    assert [before, one.check()] == ["NOT_SERVING", "SERVING"]


def test_a_dead_store_never_fails_the_liveness_service(line: MakeLine) -> None:
    one = line(SteeredCheck(run=lambda: False, backend=REMOTE))
    one.tower.start()

    assert [one.check(name) for name in ("", REMOTE, "livez", "readyz", "startupz", "LocalCPUBackend")] == [
        "NOT_SERVING",
        "NOT_SERVING",
        "SERVING",
        "SERVING",
        "SERVING",
        "SERVING",
    ]


def test_check_of_an_unknown_service_is_not_found_and_names_the_known_ones(line: MakeLine) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        line().check("RemoteBackend")

    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "no service 'RemoteBackend'; known: '', 'livez', 'readyz', 'startupz', 'LocalCPUBackend', 'RemoteBackend-0'",
    )


def test_list_tells_of_every_service(line: MakeLine) -> None:
    one = line()
    one.tower.start()
    answer = one.stub.List(health_pb2.HealthListRequest(), timeout=10)

    assert {name: found.status for name, found in answer.statuses.items()} == dict.fromkeys(
        ["", "livez", "readyz", "startupz", "LocalCPUBackend", REMOTE], health_pb2.HealthCheckResponse.SERVING
    )


def test_check_is_never_late_although_nothing_woke_the_service(line: MakeLine) -> None:
    one = line()
    one.tower.start()
    one.tower.storage.set_backend_bypass(REMOTE, True, owner="operator:alice")

    assert one.check(REMOTE) == "NOT_SERVING"


def test_watch_answers_at_once_and_with_each_change(line: MakeLine) -> None:
    check = SteeredCheck()
    one = line(check)
    one.tower.start()
    watcher = one.watch()
    first = watcher.next()
    check.run = lambda: False
    second = watcher.next()
    check.run = lambda: True

    assert [first, second, watcher.next()] == ["SERVING", "NOT_SERVING", "SERVING"]


def test_watch_brings_nothing_while_nothing_changes(line: MakeLine) -> None:
    one = line()
    one.tower.start()
    watcher = one.watch("livez")
    first = watcher.next()
    for _ in range(20):
        one.check("livez")
    one.server.stop()

    assert [first, watcher.next()] == ["SERVING", "NOT_SERVING"]


def test_watch_of_an_unknown_service_says_so_and_goes_on(line: MakeLine) -> None:
    one = line()
    watcher = one.watch("nothing")
    first = watcher.next()

    assert first == "SERVICE_UNKNOWN"
    assert watcher.stream.is_active()


def test_made_up_names_fill_no_memory(line: MakeLine) -> None:
    one = line()
    for number in range(20):
        watcher = one.watch(f"nothing-{number}")
        watcher.next()
        watcher.stream.cancel()
        watcher.next()

    assert len(one.server._servicer._inner._send_response_callbacks) == 1


def test_a_hundred_watchers_take_no_thread_each(line: MakeLine) -> None:
    one = line()
    one.tower.start()
    watchers = [one.stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=60) for _ in range(100)]
    firsts = [next(watcher).status for watcher in watchers]
    served = [thread for thread in threading.enumerate() if thread.name.startswith("lmcache-grpc")]

    assert firsts == [health_pb2.HealthCheckResponse.SERVING] * 100
    assert len(served) <= 3
    assert one.check() == "SERVING"


def test_watchers_that_leave_while_they_are_told_hold_up_no_probe(line: MakeLine) -> None:
    """The library's servicer then waits for gRPC's thread, and that one for the servicer's lock."""
    one = line()
    one.tower.start()
    for number in range(20):
        channel = grpc.insecure_channel(one.server.address or "")
        stub = health_pb2_grpc.HealthStub(channel)
        for watcher in [stub.Watch(health_pb2.HealthCheckRequest(service=REMOTE), timeout=60) for _ in range(20)]:
            next(watcher)
        leaving = threading.Thread(target=channel.close)
        leaving.start()
        one.tower.storage.set_backend_bypass(REMOTE, number % 2 == 0, owner="operator:alice")
        one.server.wake()
        leaving.join()

        assert one.check("livez") == "SERVING"


def test_watchers_that_have_left_are_forgotten(line: MakeLine) -> None:
    one = line()
    for _ in range(20):
        stream = one.stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=60)
        stream.cancel()
    watcher = one.watch()
    watcher.next()
    kept = one.server._servicer._inner._send_response_callbacks[""]

    assert until(lambda: len(kept) == 1)


def test_stop_tells_watchers_before_it_ends_them(line: MakeLine) -> None:
    one = line()
    one.tower.start()
    watcher = one.watch()
    first = watcher.next()
    stopped = one.server.stop()

    assert stopped
    assert [first, watcher.next(), watcher.next()[:5]] == ["SERVING", "NOT_SERVING", "ended"]
    assert one.server.address is None


def test_stop_before_start_is_no_error(line: MakeLine) -> None:
    one = line()
    one.server.stop()

    assert one.server.stop()


def test_a_taken_port_is_one_warning_and_the_cache_goes_on(line: MakeLine, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one = line(port=port)
        one.tower.start()

    assert one.server.address is None
    assert one.tower.monitor.is_healthy()
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage() == (
        f"internal_grpc: cannot listen on 127.0.0.1 port {port} (Address already in use); the cache runs without the "
        "gRPC health service, choose another internal_grpc_port or 0 for any"
    )


def test_two_instances_never_share_a_port(line: MakeLine) -> None:
    """gRPC's default lets them, and each client then meets either."""
    first = line()
    port = int(first.server.address.rsplit(":", 1)[1])

    assert line(port=port).server.address is None


def test_its_thread_is_in_the_registry(line: MakeLine) -> None:
    one = line()
    named = {status["name"] for status in one.tower.threads.statuses()}
    one.server.stop()

    assert "grpc-health-thread" in named
    assert "grpc-health-thread" not in {status["name"] for status in one.tower.threads.statuses()}


def test_without_the_extra_the_sentence_says_how_to_install_it(line: MakeLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigError) as caught:
        line()

    assert str(caught.value) == (
        "internal_grpc_port: the gRPC health service needs 'grpc'; run: pip install 'lmcache-core[grpc]', "
        "or leave the key out"
    )


def test_the_module_imports_no_grpc() -> None:
    script = "import sys, lmcache_core.ops.grpc_server; print(sorted({'grpc', 'google.protobuf'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
