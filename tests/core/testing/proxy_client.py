"""What clients of a proxy do in its tests."""

import socket
import time
from collections.abc import Callable

SHORT_S = 0.2


def ask(client: socket.socket, data: bytes) -> bytes:
    """Send and read as much back."""
    client.sendall(data)
    return read(client, len(data))


def read(client: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        piece = client.recv(size_bytes - len(data))
        if not piece:
            break
        data += piece
    return data


def is_silent(client: socket.socket) -> bool:
    """Nothing comes for a while, not even an end."""
    client.settimeout(SHORT_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10.0)
    return False


def until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)
