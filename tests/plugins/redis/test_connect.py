"""What is assumed of redis-py; see the top of `connect.py`."""

from __future__ import annotations

import socket

import redis
from tests.redis_server import RedisServer


def test_a_connection_keeps_its_socket_where_it_is_looked_for(redis_server: RedisServer) -> None:
    heard = []
    connection = redis.Connection(host=redis_server.host, port=redis_server.port, redis_connect_func=heard.append)

    connection.connect()

    assert isinstance(connection._sock, socket.socket)
    assert heard == [connection]
    connection.disconnect()


def test_nothing_is_said_in_place_of_the_handshake(redis_server: RedisServer) -> None:
    connection = redis.Connection(
        host=redis_server.host, port=redis_server.port, redis_connect_func=lambda _: None, protocol=2
    )
    connection.connect()

    connection._sock.sendall(b"PING\r\n")

    assert connection._sock.recv(100) == b"+PONG\r\n"
    connection.disconnect()
