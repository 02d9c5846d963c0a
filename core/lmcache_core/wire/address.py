"""Where a cache server listens: a socket file of this user, or a port of this host alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lmcache_core.errors import ConfigError
from lmcache_core.runtime_dir import runtime_dirs

LOOPBACK = "127.0.0.1"
MOST_PORT = 65535
MOST_PATH_BYTES = 100
"""Linux takes 107 bytes for the path of a socket; the lifeline's is a few longer than the server's."""

_FORMS = "write ipc:///path/of/a.sock or tcp://127.0.0.1:port"
_OF_THIS_HOST = frozenset({"127.0.0.1", "localhost"})
_KEY = "server_address"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A socket file, or a port on loopback.

    Attributes:
        path: The socket file; None for a port.
        port: 0 for any free one, or for a socket file.
    """

    path: Path | None = None
    port: int = 0

    def __str__(self) -> str:
        return f"ipc://{self.path}" if self.path is not None else f"tcp://{LOOPBACK}:{self.port}"


def default_address(environ: Mapping[str, str] = os.environ) -> str:
    """Give the address used where none is configured: a socket file in the user's runtime directory."""
    return f"ipc://{runtime_dirs(environ)[0] / 'server.sock'}"


def parse_address(text: str) -> ServerAddress:
    """Read an address, with or without its scheme.

    ``/run/a.sock`` is a socket file; ``127.0.0.1:7001`` and ``localhost:7001`` are ports.

    Raises:
        ConfigError: It is none, or is one that other hosts could reach; says which and what to write.
    """
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = ("ipc", text) if text.startswith("/") else ("tcp", text)
    if scheme == "ipc":
        return _socket_file(text, rest)
    if scheme == "tcp":
        return _port(text, rest)
    raise ConfigError(f"{_KEY}: {text!r} has scheme {scheme!r}; {_FORMS}")


def _socket_file(text: str, path: str) -> ServerAddress:
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ConfigError(f"{_KEY}: {text!r} names no socket file by its whole path; {_FORMS}")
    size = len(os.fsencode(path))
    if size > MOST_PATH_BYTES:
        raise ConfigError(
            f"{_KEY}: the path in {text!r} has {size} bytes and the system takes {MOST_PATH_BYTES}; "
            "choose a shorter folder"
        )
    return ServerAddress(path=Path(path))


def _port(text: str, place: str) -> ServerAddress:
    if place.startswith("[") or "::" in place:
        raise ConfigError(f"{_KEY}: {text!r} is an IPv6 address, which is not served; write tcp://127.0.0.1:port")
    host, *ports = place.split(":")
    if len(ports) > 1:
        raise ConfigError(f"{_KEY}: {text!r} has more than one port; {_FORMS}")
    if not ports or not ports[0]:
        raise ConfigError(f"{_KEY}: {text!r} has no port; {_FORMS}")
    if host not in _OF_THIS_HOST:
        raise ConfigError(
            f"{_KEY}: {text!r} could be reached from other hosts, and a cache server speaks to this host only; "
            "write tcp://127.0.0.1:port"
        )
    digits = ports[0]
    if not (digits.isascii() and digits.isdecimal() and int(digits) <= MOST_PORT):
        raise ConfigError(f"{_KEY}: {text!r} has port {digits!r}; write a number from 0 to {MOST_PORT}")
    return ServerAddress(port=int(digits))
