"""Table ``[extra_config.redis]``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from lmcache_core import PluginSettings


class RedisSettings(PluginSettings):
    """Table ``[extra_config.redis]``; environment ``LMCACHE_EXTRA_CONFIG__REDIS__<KEY>``.

    A user name or password in the store's address wins over the one here.
    """

    table = "redis"

    username: str = ""
    """ACL user; empty for the server's default user."""

    password: SecretStr = SecretStr("")
    """Password, as it is: no percent-encoding, unlike in an address."""

    ca_file: Path | None = None
    """PEM file with the certificate authority to trust; none for the system's own."""

    cert_file: Path | None = None
    """PEM file with the client's certificate, where the server asks for one."""

    key_file: Path | None = None
    """PEM file with the client's private key."""

    check_hostname: bool = True
    """Whether the server's certificate must name the host of the address."""

    ttl_s: int = Field(default=0, ge=0)
    """Seconds until a chunk expires; storing it again starts anew. 0 for never."""

    key_prefix: str = Field(default="lmcache", pattern=r"^[A-Za-z0-9_.\-]{1,64}$")
    """First part of every key, to tell apart caches that share a server and must not share chunks."""

    connect_timeout_s: float = Field(default=2.0, gt=0)
    """Seconds a connection may take to be made; a call's deadline may end it sooner."""

    @model_validator(mode="after")
    def _check_pair(self) -> RedisSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file must be given together")
        return self
