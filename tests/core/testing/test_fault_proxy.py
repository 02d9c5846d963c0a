"""The proxy over real sockets: each fault, its end, and what is counted."""

import socket
import threading
import time
from collections.abc import Callable

import pytest
from tests.core.testing.proxy_client import SHORT_S, ask, is_silent, read, until

from lmcache_core.testing import (
    Blackhole,
    Corrupt,
    Cut,
    Drip,
    FaultProxy,
    HalfOpen,
    Hang,
    Latency,
    Refuse,
    Way,
)

Connect = Callable[..., socket.socket]


def test_without_a_fault_everything_passes(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    data = bytes(range(256)) * 8192
    sending = threading.Thread(target=client.sendall, args=(data,))
    sending.start()

    assert read(client, len(data)) == data
    sending.join()


def test_the_end_of_a_client_reaches_the_server(proxy: FaultProxy, connect: Connect, echo) -> None:
    client = connect(proxy)
    ask(client, b"x")
    client.shutdown(socket.SHUT_WR)

    assert echo.ended.wait(10.0)
    assert client.recv(1) == b""


def test_latency_delays_replies(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Latency(0.15))
    begin_s = time.monotonic()
    ask(client, b"x")

    assert time.monotonic() - begin_s >= 0.15


@pytest.mark.timing
def test_latency_is_not_added_up_for_what_comes_together(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Latency(0.3))
    begin_s = time.monotonic()
    for _ in range(10):
        client.sendall(b"x")
        time.sleep(0.005)
    read(client, 10)

    assert time.monotonic() - begin_s < 1.0


def test_clearing_latency_lets_what_waits_pass(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Latency(3600.0))
    client.sendall(b"x")
    until(lambda: proxy.statistics.applied.get("Latency") == 1)
    proxy.clear()

    assert client.recv(1) == b"x"


def test_refuse_resets_what_is_open(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    ask(client, b"x")
    proxy.apply(Refuse())

    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_refuse_refuses_what_is_new(proxy: FaultProxy, connect: Connect) -> None:
    proxy.apply(Refuse())

    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


def test_the_port_is_the_same_after_refusing(proxy: FaultProxy, connect: Connect) -> None:
    port = proxy.port
    for _ in range(5):
        proxy.apply(Refuse())
        proxy.clear()

    assert proxy.port == port
    assert ask(connect(proxy), b"x") == b"x"


def test_nobody_gets_the_port_while_it_refuses(proxy: FaultProxy) -> None:
    proxy.apply(Refuse())

    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((proxy.host, proxy.port))


def test_blackhole_lets_connecting_hang(proxy: FaultProxy, connect: Connect) -> None:
    proxy.apply(Blackhole())

    with pytest.raises(TimeoutError):
        connect(proxy, SHORT_S)


def test_after_a_blackhole_the_old_stays_dead_and_the_new_works(proxy: FaultProxy, connect: Connect) -> None:
    old = connect(proxy)
    ask(old, b"x")
    proxy.apply(Blackhole())
    proxy.clear()
    old.sendall(b"x")

    assert ask(connect(proxy), b"y") == b"y"
    assert is_silent(old)


def test_hang_holds_replies_until_it_is_cleared(proxy: FaultProxy, connect: Connect, echo) -> None:
    client = connect(proxy)
    proxy.apply(Hang())
    client.sendall(b"x")
    silent = is_silent(client)
    proxy.clear()

    assert silent
    assert bytes(echo.heard) == b"x"
    assert client.recv(1) == b"x"


def test_hang_holds_connections_made_meanwhile(proxy: FaultProxy, connect: Connect) -> None:
    proxy.apply(Hang())
    client = connect(proxy)
    client.sendall(b"x")

    assert is_silent(client)


def test_hang_comes_after_so_many_bytes(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Hang(after_bytes=3))
    client.sendall(b"12345")

    assert read(client, 3) == b"123"
    assert is_silent(client)


def test_hang_both_ways_keeps_requests_from_the_server(proxy: FaultProxy, connect: Connect, echo) -> None:
    client = connect(proxy)
    proxy.apply(Hang(way=Way.BOTH))
    client.sendall(b"x")

    assert is_silent(client)
    assert bytes(echo.heard) == b""


def test_what_a_hang_held_is_lost_when_the_server_goes(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Hang())
    client.sendall(b"x")
    until(lambda: proxy.statistics.applied.get("Hang") == 1)
    proxy.apply(Refuse())

    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_half_open_passes_neither_bytes_nor_ends(proxy: FaultProxy, connect: Connect, echo) -> None:
    client = connect(proxy)
    ask(client, b"x")
    proxy.apply(HalfOpen())
    client.sendall(b"y")
    echo.stop()

    assert is_silent(client)
    assert bytes(echo.heard) == b"x"


def test_half_open_connections_stay_dead(proxy: FaultProxy, connect: Connect) -> None:
    proxy.apply(HalfOpen())
    client = connect(proxy)
    client.sendall(b"x")
    until(lambda: proxy.statistics.applied.get("HalfOpen") == 1)
    proxy.clear()

    assert is_silent(client)
    assert ask(connect(proxy), b"y") == b"y"


def test_drip_takes_its_time(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Drip(1000.0))
    begin_s = time.monotonic()
    ask(client, b"x" * 300)

    assert time.monotonic() - begin_s >= 0.27


def test_cut_ends_a_reply_in_order(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Cut(3))
    client.sendall(b"12345")

    assert read(client, 5) == b"123"


def test_cut_can_reset(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Cut(0, reset=True))
    client.sendall(b"12345")

    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_corrupt_changes_the_byte_at_its_place(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    ask(client, b"not counted")
    proxy.apply(Corrupt(offset_bytes=5))
    data = ask(client, bytes(10))

    assert [place for place, byte in enumerate(data) if byte] == [5]


def test_corrupt_can_change_requests(proxy: FaultProxy, connect: Connect, echo) -> None:
    client = connect(proxy)
    proxy.apply(Corrupt(offset_bytes=5, way=Way.REQUESTS))
    ask(client, bytes(10))

    assert [place for place, byte in enumerate(echo.heard) if byte] == [5]


def test_the_same_seed_changes_the_same_bytes(echo, connect: Connect) -> None:
    def run(seed: int) -> bytes:
        with FaultProxy(to=echo.address, seed=seed) as proxy:
            proxy.apply(Corrupt(every_bytes=100))
            return ask(connect(proxy), bytes(5000))

    assert run(7) == run(7) != run(8)
    assert [sum(map(bool, run(7)[n : n + 100])) for n in range(0, 5000, 100)] == [1] * 50


def test_faults_can_be_joined(proxy: FaultProxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.apply(Latency(0.1), Cut(3), Corrupt(offset_bytes=1))
    begin_s = time.monotonic()
    client.sendall(bytes(10))
    data = read(client, 10)

    assert time.monotonic() - begin_s >= 0.1
    assert [bool(byte) for byte in data] == [False, True, False]
