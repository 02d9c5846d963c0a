"""The plugin's table of the configuration."""

from __future__ import annotations

from lmcache_core import PluginSettings, StoreURL
from pydantic import Field, SecretStr, field_validator


class DatabaseSettings(PluginSettings):
    """Table ``[extra_config.database]``."""

    table = "database"

    dsn: SecretStr = SecretStr("sqlite:///:memory:")
    """Address: ``sqlite:///<path>``, or ``<DB-API module>://user:password@host:port/database``."""

    module: str = Field(default="", pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?$")
    """DB-API 2.0 module to connect with; empty: the scheme of `dsn` is its name."""

    query: str = Field(default="SELECT 1", min_length=1)
    """Passes when the first value of its first row is true."""

    timeout_s: float = Field(default=3.0, gt=0)
    """Seconds one run may take."""

    @field_validator("dsn")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        url = StoreURL.parse(value.get_secret_value())  # its sentences show no part of the credentials
        if url.scheme == "sqlite" and (url.host or len(url.path) < 2):
            raise ValueError(
                "a SQLite address is sqlite:///relative/path, sqlite:////absolute/path or sqlite:///:memory:"
            )
        return value

    @property
    def url(self) -> StoreURL:
        """The parsed address; its text has no credentials."""
        return StoreURL.parse(self.dsn.get_secret_value())
