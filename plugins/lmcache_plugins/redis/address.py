"""Where a Redis server is and how to be let in; its secrets never show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from lmcache_core import ConfigError, StoreURL
from lmcache_plugins.redis.settings import RedisSettings

_PLAIN = ("redis", "valkey")
_TLS = ("rediss", "valkeys")
_UNIX = ("unix", "redis+unix")
SCHEMES = _PLAIN + _TLS + _UNIX
"""Schemes of the addresses that this plugin serves."""

_PORT = 6379  # of Redis, when an address names none
_NUMBER = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Everything that opening a connection takes.

    Attributes:
        shown: The address without credentials, for messages.
        host: ``""`` for a unix socket.
        port: Meaningless for a unix socket.
        socket_path: ``""`` for TCP.
        tls: Whether to speak TLS.
        db: Number of the database.
        username: ``""`` for the server's default user.
        password: ``""`` for none.
        ca_file: Whom to trust; None for the system's own.
        cert_file: Of the client.
        key_file: Of the client.
        check_hostname: Whether the server's certificate must name `host`.
        connect_timeout_s: Seconds that a connection may take.
    """

    shown: str
    host: str
    port: int
    socket_path: str
    tls: bool
    db: int
    username: str = field(repr=False)
    password: str = field(repr=False)
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    check_hostname: bool
    connect_timeout_s: float

    @classmethod
    def of(cls, url: StoreURL, settings: RedisSettings) -> RedisAddress:
        """Read an address; what it leaves open is in the table.

        Raises:
            ConfigError: A part of the address, or a file, is wrong.
        """
        unix = url.scheme in _UNIX
        if unix and (url.host or url.port is not None or not url.path.strip("/")):
            raise ConfigError(f"{url}: names no socket; write {url.scheme}:///path/of/redis.sock")
        if not unix and not url.host:
            raise ConfigError(f"{url}: names no host; write {url.scheme}://host:{_PORT}")
        for label in ("ca_file", "cert_file", "key_file"):
            path = getattr(settings, label)
            if url.scheme in _TLS and path is not None and not path.is_file():
                raise ConfigError(f"extra_config.redis.{label}: there is no file {path}")
        return cls(
            shown=str(url),
            host=url.host,
            port=url.port or _PORT,
            socket_path=url.path if unix else "",
            tls=url.scheme in _TLS,
            db=cls._db(url, "" if unix else url.path.strip("/")),
            username=url.username or settings.username,
            password=url.password or settings.password.get_secret_value(),
            ca_file=settings.ca_file,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            check_hostname=settings.check_hostname,
            connect_timeout_s=settings.connect_timeout_s,
        )

    @staticmethod
    def _db(url: StoreURL, number: str) -> int:
        for name, value in url.query:
            if name != "db":  # some clients take passwords here: name no value
                raise ConfigError(f"{url}: unknown option {name!r}; the only one is db=<number>")
            number = value
        if number and _NUMBER.fullmatch(number) is None:
            raise ConfigError(f"{url}: the database must be a number such as 0, got {number!r}")
        return int(number or "0")
