"""The proxy's life: schedules, statistics, start and stop."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import pytest
from tests.core.testing.proxy_client import ask, until

from lmcache_core.testing import Clear, Corrupt, FaultProxy, Hang, Latency, Refuse, flapping

Connect = Callable[..., socket.socket]


def test_a_schedule_changes_faults_by_the_clock(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    schedule = proxy.schedule([(0.0, Hang()), (0.3, Clear())])
    until(lambda: proxy.faults == (Hang(),))
    begin_s = time.monotonic()
    ask(client, b"x")

    assert time.monotonic() - begin_s > 0.1
    assert schedule.wait(10.0)
    assert proxy.faults == ()


def test_flapping_comes_and_goes(proxy: FaultProxy) -> None:
    schedule = proxy.schedule(flapping(Refuse(), up_s=0.02, down_s=0.02, cycles=3))

    assert schedule.wait(10.0)
    assert proxy.faults == ()


def test_a_word_of_the_caller_ends_the_schedule(proxy: FaultProxy) -> None:
    schedule = proxy.schedule(flapping(Refuse(), up_s=0.001, down_s=0.001))
    proxy.apply(Latency(0.1))
    time.sleep(0.05)

    assert schedule.wait(0.0)
    assert proxy.faults == (Latency(0.1),)


def test_a_server_that_is_away_resets_the_client(connect: Connect) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # bound, so that nobody else gets the port, and not listening
        with FaultProxy(to=deaf.getsockname()) as proxy, pytest.raises(ConnectionResetError):
            connect(proxy).recv(1)

    assert proxy.statistics.failed_connects == 1


def test_statistics_count_connections_bytes_and_faults(proxy: FaultProxy, connect: Connect) -> None:
    first, second = connect(proxy), connect(proxy)
    ask(first, b"12345")
    proxy.apply(Corrupt(every_bytes=2))
    ask(second, b"1234")
    proxy.apply(Refuse())
    until(lambda: proxy.statistics.open_connections == 0)

    statistics = proxy.statistics
    assert (statistics.connections, statistics.request_bytes, statistics.reply_bytes) == (2, 9, 9)
    assert statistics.applied == {"Corrupt": 2, "Refuse": 2}


def test_stopping_resets_what_is_open(echo, connect: Connect) -> None:
    with FaultProxy(to=echo.address) as proxy:
        client = connect(proxy)
        ask(client, b"x")
        proxy.apply(Hang())
        client.sendall(b"y")

    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_stopping_twice_is_harmless_and_leaves_no_thread(echo) -> None:
    proxy = FaultProxy(to=echo.address)
    proxy.start()
    proxy.schedule(flapping(Hang(), up_s=0.01, down_s=0.01))
    proxy.stop()
    proxy.stop()

    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("fault-")] == []


def test_a_port_that_is_taken_is_an_error(proxy: FaultProxy, echo) -> None:
    with pytest.raises(OSError, match="in use"):
        FaultProxy(to=echo.address, listen=(proxy.host, proxy.port)).start()


def test_a_proxy_that_does_not_run_says_so(echo) -> None:
    with pytest.raises(RuntimeError) as caught:
        FaultProxy(to=echo.address).apply(Hang())

    assert str(caught.value) == "the fault proxy is not running; start it first"


def test_a_proxy_is_started_once(proxy: FaultProxy) -> None:
    with pytest.raises(RuntimeError) as caught:
        proxy.start()

    assert str(caught.value) == "the fault proxy was started before; make another one"


def test_many_connections_that_come_and_go_leave_none_behind(proxy: FaultProxy) -> None:
    def work() -> None:
        for _ in range(20):
            with contextlib.suppress(OSError), socket.create_connection((proxy.host, proxy.port), 5.0) as client:
                ask(client, b"x" * 1000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    schedule = proxy.schedule(flapping(Refuse(), up_s=0.01, down_s=0.005, cycles=20, jitter_s=0.01, seed=7))
    for thread in threads:
        thread.join(20.0)
    schedule.wait(10.0)

    until(lambda: proxy.statistics.open_connections == 0)
