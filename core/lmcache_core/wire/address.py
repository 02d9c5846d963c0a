"""Where a cache server listens: a socket file of this user, or a port of this host alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lmcache_core.config.server_address import judge_server_address
from lmcache_core.errors import ConfigError
from lmcache_core.runtime_dir import runtime_dirs

LOOPBACK = "127.0.0.1"


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
    """Read an address, with or without its scheme, by the rules of the configuration's ``server_address``.

    ``/run/a.sock`` is a socket file; ``127.0.0.1:7001`` and ``localhost:7001`` are ports.

    Raises:
        ConfigError: It is none, or is one that other hosts could reach; says which and what to write.
    """
    try:
        scheme, _, place = judge_server_address(text).partition("://")
    except ValueError as error:
        raise ConfigError(f"server_address: {text!r} {error}") from None
    return ServerAddress(path=Path(place)) if scheme == "ipc" else ServerAddress(port=int(place.rpartition(":")[2]))
