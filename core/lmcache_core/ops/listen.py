"""Taking a port."""

from __future__ import annotations

import socket


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes any free one.

    Raises:
        OSError: The address is not ours, or the port is taken.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address, family=family)


def reason_of(error: OSError) -> str:
    """Say why a port cannot be had, without the address."""
    return str(error.strerror or error).partition(" (while ")[0]


def with_port(host: str, port: int) -> str:
    """Write host and port as one text, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
