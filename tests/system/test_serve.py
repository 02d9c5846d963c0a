"""``lmcachectl serve`` as service managers and operators see it, with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.core.telemetry.collector import Collector
from tests.redis_server import RedisServer
from tests.serve_process import ServeProcess, clean_environ, lmcachectl

from lmcache_core import CacheClient, KVLayout, connect

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
TOKENS = torch.arange(64)
KV = torch.arange(2 * 2 * 64 * 8, dtype=torch.float32).reshape(2, 2, 64, 8)
START = "start one with: lmcachectl serve, or name its address with --address"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the path of a socket has a hundred bytes at most."""
    with tempfile.TemporaryDirectory(prefix="lmc-") as made:
        yield Path(made)


def client(server: ServeProcess, **asked: object) -> CacheClient:
    options = {"layout": LAYOUT, "model_name": "m", **asked}
    return connect(overrides={"chunk_size": 16}, environ={}, address=server.addresses["address"], **options)  # type: ignore[arg-type]


# -- one server -------------------------------------------------------------------------


def test_it_says_on_one_screen_what_it_started_and_ends_with_0(folder: Path) -> None:
    with ServeProcess(folder, remote_url=f"file://{folder}/kv") as server:
        status = lmcachectl("status", "--address", server.address)
        code = server.stop()
        lines = server.out.splitlines()

    assert code == 0
    assert lines[0].startswith("lmcache-core 0.1.0 cache server, pid ")
    assert len(lines) <= 24
    assert f"address  {server.address}" in lines
    assert f"         1 RemoteBackend  file://{folder}/kv  up" in lines
    assert status.returncode == 0
    assert status.stdout.startswith("● UP for ")
    assert "no client is connected" in status.stdout


def test_the_log_is_objects_where_that_is_asked_for(folder: Path) -> None:
    with ServeProcess(folder, options=("--log-format", "json")) as server:
        server.stop()
        records = [json.loads(line) for line in server.err.splitlines()]

    (serving,) = [one for one in records if one["message"] == f"serving at {server.address}"]
    assert server.out == ""
    assert (serving["level"], serving["address"], serving["pid"]) == ("info", server.address, server.pid)
    assert serving["plugins"]["redis"]
    assert records[-1]["message"] == "the server has ended"


def test_what_waits_is_written_before_it_ends(folder: Path) -> None:
    with ServeProcess(folder, remote_url=f"file://{folder}/kv", chunk_size=16) as server:
        with client(server) as cache:
            assert cache.store(TOKENS, KV) == 64
        assert server.stop() == 0
    with ServeProcess(folder, remote_url=f"file://{folder}/kv", chunk_size=16) as server, client(server) as cache:
        out = torch.zeros_like(KV)

        assert cache.retrieve(TOKENS, out).all()
        assert torch.equal(out, KV)


def test_the_last_usage_message_goes_out_before_it_ends(folder: Path) -> None:
    home = {"HOME": str(folder), "DO_NOT_TRACK": ""}
    with (
        Collector() as collector,
        ServeProcess(
            folder, chunk_size=16, environ=home, usage_endpoint=f"http://127.0.0.1:{collector.port}"
        ) as server,
    ):
        with client(server) as cache:
            assert cache.store(TOKENS, KV) == 64
            assert cache.lookup(TOKENS) == 64
        assert server.stop() == 0
        told = collector.of("ContinuousContextMessage")

    assert {one["deployment_mode"] for one in told} == {"mp_server"}
    assert sum(one["interval_num_stored_tokens"] for one in told) == 64
    assert sum(one["interval_num_lookup_hit_tokens"] for one in told) == 64


@pytest.mark.timing
def test_a_store_that_hangs_delays_the_end_for_no_longer_than_is_configured(
    folder: Path, redis_server: RedisServer
) -> None:
    with ServeProcess(
        folder, remote_url=redis_server.url, chunk_size=16, server_drain_secs=1.0, blocking_timeout_secs=1.0
    ) as server:
        redis_server.pause()
        with client(server) as cache:
            cache.store(TOKENS, KV)
        began_s = time.monotonic()
        code = server.stop()

    assert code == 0
    assert time.monotonic() - began_s < 10


def test_a_second_signal_ends_it_at_once(folder: Path, redis_server: RedisServer) -> None:
    with ServeProcess(
        folder, remote_url=redis_server.url, chunk_size=16, server_drain_secs=60.0, blocking_timeout_secs=60.0
    ) as server:
        redis_server.pause()
        with client(server) as cache:
            cache.store(TOKENS, KV)
        server.send(signal.SIGTERM)
        wait_for(lambda: "a second signal ends at once" in server.err)
        assert server._process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            server._process.wait(0.5)
        server.send(signal.SIGTERM)

        assert server.ended(5)[0] == 143


def test_ctrl_c_is_an_end_like_any_other(folder: Path) -> None:
    with ServeProcess(folder) as server:
        server.send(signal.SIGINT)
        code, log = server.ended()

    assert code == 0
    assert "SIGINT: no new clients; what waits is written for at most 10 s; a second signal ends at once" in log
    assert "Traceback" not in log


def test_a_hangup_changes_nothing_and_says_so(folder: Path) -> None:
    with ServeProcess(folder) as server:
        server.send(signal.SIGHUP)
        wait_for(lambda: "SIGHUP: nothing is read again while the server runs; restart it" in server.err)

        assert lmcachectl("status", "--address", server.address).returncode == 0
        assert server.stop() == 0


def test_it_needs_no_torch(folder: Path) -> None:
    (folder / "torch.py").write_text("raise ImportError('there is no torch')\n")
    with ServeProcess(folder, environ={"PYTHONPATH": str(folder)}) as server:
        assert lmcachectl("status", "--address", server.address).returncode == 0


def test_no_password_is_shown(folder: Path) -> None:
    with RedisServer(password="hunter2secret") as redis, ServeProcess(folder, remote_url=redis.url) as server:
        status = lmcachectl("status", "--address", server.address)
        document = json.dumps(server.status())
        server.stop()
        shown = server.out + server.err + status.stdout + document

    assert "RemoteBackend" in status.stdout
    assert "hunter2secret" not in shown


# -- addresses ----------------------------------------------------------------------------


def test_a_second_server_at_one_address_is_told_who_has_it(folder: Path) -> None:
    with ServeProcess(folder) as first:
        done = lmcachectl("serve", "--set", f"server_address={first.address}", "--set", "max_local_cpu_size=0.01")

        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            f"error: another server, pid {first.pid}, serves at {first.address}; stop it or set server_address"
        )
        assert lmcachectl("status", "--address", first.address).returncode == 0


def test_a_taken_port_is_a_sentence(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = lmcachectl(
            *("serve", "--set", f"server_address=tcp://127.0.0.1:{port}", "--set", "max_local_cpu_size=0.01"),
            environ={"XDG_RUNTIME_DIR": str(folder)},
        )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: another process serves at tcp://127.0.0.1:{port}")


def test_the_socket_of_a_dead_server_is_recognised_and_replaced(folder: Path) -> None:
    with ServeProcess(folder) as server:
        server.send(signal.SIGKILL)
        server.ended()
        dead = lmcachectl("status", "--address", server.address)
    with ServeProcess(folder) as server:
        alive = lmcachectl("status", "--address", server.address)

    assert (dead.returncode, dead.stderr) == (
        1,
        f"error: no cache server answers at {server.address}: its server has ended and left the socket; {START}\n",
    )
    assert alive.returncode == 0


def test_a_file_in_the_way_is_left_alone(folder: Path) -> None:
    (folder / "s").write_text("mine")
    done = lmcachectl("serve", "--set", f"server_address=ipc://{folder}/s", "--set", "max_local_cpu_size=0.01")

    assert done.returncode == 1
    assert f"{folder}/s is there and is no socket; remove it or set server_address" in done.stderr
    assert (folder / "s").read_text() == "mine"


def test_port_0_takes_a_free_one_and_tells_it(folder: Path) -> None:
    settings = {
        "server_address": "tcp://127.0.0.1:0",
        "internal_api_server_enabled": True,
        "internal_api_server_port_start": 0,
    }
    with ServeProcess(folder, environ={"XDG_RUNTIME_DIR": str(folder)}, **settings) as server:
        told = server.addresses
        status = server.status()
        assert told == {name: status[name] for name in ("pid", "address", "http", "grpc")}
        assert not told["address"].endswith(":0")
        with urllib.request.urlopen(f"{told['http']}/readyz", timeout=10) as answer:
            assert answer.status == 200
        server.stop()

        assert not server.has_addresses


def test_a_taken_port_of_the_pages_costs_only_the_pages(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"internal_api_server_enabled": True, "internal_api_server_port_start": port}
        with ServeProcess(folder, **settings) as server:
            assert lmcachectl("status", "--address", server.address).returncode == 0
            assert "http     not served; the log says why" in server.out.splitlines()
            assert f"cannot listen on 127.0.0.1 port {port}" in server.err
            assert server.addresses["http"] is None


def test_two_servers_on_one_host_with_two_ranks_each(folder: Path) -> None:
    pages = {"internal_api_server_enabled": True, "internal_api_server_port_start": 0, "chunk_size": 16}
    with ServeProcess(folder, name="a", **pages) as one, ServeProcess(folder, name="b", **pages) as two:
        assert one.addresses["http"] != two.addresses["http"]
        with two_ranks(one) as of_one, two_ranks(two) as of_two:
            for server, pids in ((one, of_one()), (two, of_two())):
                told = server.status()
                shown = lmcachectl("status", "--address", server.address).stdout
                found = [part["registrations"][0] for part in told["sessions"]]

                assert sorted((part["ranks"], part["world_size"]) for part in found) == [([0], 2), ([1], 2)]
                assert {part["pid"] for part in told["sessions"]} == pids
                assert "0 of 2" in shown
                assert "1 of 2" in shown
        wait_for(lambda: not one.status()["sessions"] and not two.status()["sessions"])


_TWO_RANKS = """
import os, sys, torch
from lmcache_core import KVLayout, connect
rank = 0 if os.fork() else 1  # torch takes seconds to import
layout = KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32")
cache = connect(environ={}, address=sys.argv[1], layout=layout, model_name="m", world_size=2, rank=rank)
assert cache.store(torch.arange(32), torch.ones(2, 2, 32, 8)) == 32
os.write(1, b"%d\\n" % os.getpid())
sys.stdin.read()
"""


@contextlib.contextmanager
def two_ranks(server: ServeProcess) -> Iterator[Callable[[], set[int]]]:
    """Two processes that store and stay, and are killed at the end; gives a function that waits for their pids."""
    made = subprocess.Popen(
        [sys.executable, "-c", _TWO_RANKS, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environ(),
        start_new_session=True,
    )
    assert made.stdout is not None
    lines = made.stdout
    try:
        yield lambda: {int(lines.readline()), int(lines.readline())}
    finally:
        os.killpg(made.pid, signal.SIGKILL)
        made.communicate(timeout=30)


# -- status and top ---------------------------------------------------------------------------


@pytest.mark.timing
def test_a_stopped_server_is_told_from_a_slow_one(folder: Path) -> None:
    with ServeProcess(folder) as server:
        server.send(signal.SIGSTOP)
        began_s = time.monotonic()
        done = lmcachectl("status", "--address", server.address)

        assert done.returncode == 1
        assert done.stderr == (
            f"error: no answer from {server.address} within 2 s: the server is stopped or stuck, or it is another program\n"
        )
        assert time.monotonic() - began_s < 15


def test_a_socket_of_another_user_is_told(folder: Path) -> None:
    """As root: become another user. As anybody else: a socket that even its owner may not use."""
    script = (
        "import os, sys\n"
        "from lmcache_core.cli.server_page import ServerPage\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: ServerPage(sys.argv[1]).read()\n"
        "except Exception as error: print(error)\n"
    )
    with ServeProcess(folder) as server:
        folder.chmod(0o755)
        (folder / "s").chmod(0o600 if os.getuid() == 0 else 0)
        done = subprocess.run(
            [sys.executable, "-c", script, server.address], capture_output=True, text=True, timeout=60, check=False
        )

    assert done.stdout == (
        f"the cache server at {server.address} is another user's; run this as the user that runs the server\n"
    )


def test_top_shows_what_the_clients_do(folder: Path) -> None:
    with ServeProcess(folder, chunk_size=16) as server, client(server) as cache:
        done = threading.Event()

        def work() -> None:
            salt = 0
            while not done.is_set():
                salt += 1
                cache.store(TOKENS, KV, salt=str(salt))
                cache.lookup(TOKENS, salt=str(salt), request_id=str(salt))
                cache.retrieve(TOKENS, torch.zeros_like(KV), salt=str(salt), request_id=str(salt))

        thread = threading.Thread(target=work)
        thread.start()
        shown = lmcachectl("top", "--once", "--interval", "0.5s", "--address", server.address).stdout
        done.set()
        thread.join(30)

    rates = {line[:27].strip(): line[27:].split() for line in shown.splitlines()}
    assert rates["found of what was looked up"][0] == "100.0"
    for name in ("tokens looked up", "tokens retrieved", "tokens stored", "calls"):
        assert rates[name][0] not in {"0", "-"}, name
    assert "worker 0" in shown


def wait_for(holds: object, timeout_s: float = 20.0) -> None:
    """Poll another process; nothing here can be awaited."""
    assert callable(holds)
    until_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.05)
