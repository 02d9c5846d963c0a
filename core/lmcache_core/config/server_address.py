"""The address of a cache server as a configuration value: a socket file of this host, or a loopback port."""

from __future__ import annotations

from typing import Final

_IPC: Final = "ipc://"
_TCP: Final = "tcp://"
_LOOPBACK: Final = "127.0.0.1"
_OF_THIS_HOST: Final = frozenset({_LOOPBACK, "localhost"})
_LAST_PORT: Final = 65535
_LONGEST_PATH_BYTES: Final = 100
"""Linux takes 107 bytes for the path of a socket (`sun_path`, unix(7)); the rest is for the names beside it."""

_FORMS: Final = "ipc:///path/of/a.sock or tcp://127.0.0.1:port"


def judge_server_address(text: str) -> str:
    """Give the address back as it is used: ``ipc://`` with an absolute path, or ``tcp://127.0.0.1:port``.

    Raises:
        ValueError: It is neither, or other hosts could reach it; a sentence without the key.
    """
    text = text.strip()
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = ("ipc" if text.startswith("/") else "tcp"), text
    if scheme == "ipc":
        return _socket_file(rest)
    if scheme == "tcp" and rest:
        return _port(rest)
    raise ValueError(f"must be {_FORMS}")


def _socket_file(path: str) -> str:
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"must have the absolute path of a socket file; write {_FORMS}")
    if not path.isprintable() or any(letter in path for letter in "*?"):
        raise ValueError("must have a path without control characters, * and ?")
    size_bytes = len(path.encode())
    if size_bytes > _LONGEST_PATH_BYTES:
        raise ValueError(
            f"has a path of {size_bytes} bytes, more than the {_LONGEST_PATH_BYTES} that a socket's may have; "
            "choose a shorter one"
        )
    return _IPC + path


def _port(place: str) -> str:
    if place.startswith("[") or "::" in place:
        raise ValueError(f"must not be an IPv6 address; write {_TCP}{_LOOPBACK}:port")
    host, *ports = place.split(":")
    if host not in _OF_THIS_HOST:
        raise ValueError(
            f"is on {host!r}, and a cache server shares memory with its clients, so it speaks to its own host only; "
            f"write {_FORMS}"
        )
    if len(ports) != 1 or not (ports[0].isascii() and ports[0].isdecimal() and int(ports[0]) <= _LAST_PORT):
        raise ValueError(f"must have one port from 0 to {_LAST_PORT}, such as {_TCP}{_LOOPBACK}:7800")
    return f"{_TCP}{_LOOPBACK}:{int(ports[0])}"
