"""The address of a cache server: a socket file of this host, or a loopback port when asked for."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

_IPC: Final = "ipc://"
_TCP: Final = "tcp://"
_LAST_PORT: Final = 65535
_LONGEST_PATH_BYTES: Final = 90
"""Linux takes 107 bytes for the path of a socket (`sun_path`, unix(7)); the rest is for the names beside it."""


def judge_server_address(text: str) -> str:
    """Give the address back, as it is used.

    Raises:
        ValueError: It is neither ``ipc://`` with an absolute path nor ``tcp://`` with a loopback address and port.
    """
    text = text.strip()
    if text.startswith(_IPC):
        return _ipc(text)
    if text.startswith(_TCP):
        return _tcp(text)
    if text.startswith("/"):
        raise ValueError(f"must say ipc:// before the path; write 'ipc://{text}'")
    raise ValueError("must be ipc:// with an absolute path, or tcp:// with a loopback address and a port")


def _ipc(text: str) -> str:
    path = text[len(_IPC) :]
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError("must have the absolute path of a socket, such as ipc:///run/lmcache-core/server.sock")
    if any(letter in path for letter in "\0\n*?") or not path.isprintable():
        raise ValueError("must have a path without control characters and without * and ?")
    if len(path.encode()) > _LONGEST_PATH_BYTES:
        raise ValueError(
            f"has a path of {len(path.encode())} bytes, more than the {_LONGEST_PATH_BYTES} that a socket may have; "
            "choose a shorter one"
        )
    return text


def _tcp(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("must have one port, such as tcp://127.0.0.1:7800") from None
    if port is None or not 0 <= port <= _LAST_PORT or parts.path or parts.query or parts.username is not None:
        raise ValueError("must be tcp:// with a loopback address and a port, such as tcp://127.0.0.1:7800")
    if host == "localhost":
        host = "127.0.0.1"
    if not _is_loopback(host):
        raise ValueError(
            f"is on {host!r}, which is no loopback address: the server shares memory with its clients, so they are "
            "on one host; write 127.0.0.1 or an ipc:// path"
        )
    return f"{_TCP}[{host}]:{port}" if ":" in host else f"{_TCP}{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
