"""What loaded plugins would bring, and a short way to judge a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, SecretStr, field_validator

from lmcache_core.config.sources import read_sources
from lmcache_core.config.validate import Configuration, TableOwner, validate
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import ConfigError

POLICIES = {"recompute": "fallback", "local_cpu": "fallback"}
SCHEMES = {"file": "file", "redis": "redis", "rediss": "redis", "mooncakestore": "mooncake"}
UNLOADED = {"influx": "needs 'influxdb_client'; run: pip install 'lmcache-core[influx]'"}


class DatabaseSettings(PluginSettings):
    """Where the database is."""

    table = "database"

    dsn: SecretStr = SecretStr("sqlite:///:memory:")
    """Address with password."""

    timeout_s: float = Field(default=2.0, gt=0)
    """Seconds."""

    folder: Path = Path("/var/lib/database")
    """Where files go."""

    tags: tuple[str, ...] = ()
    """Any words."""

    mode: str = "fast"
    """Word."""

    @field_validator("mode")
    @classmethod
    def _is_mode(cls, value: str) -> str:
        if value not in {"fast", "safe"}:
            raise ValueError(f"no mode {value}")
        return value


class MooncakeSettings(PluginSettings):
    """Keys of LMCache's Mooncake connector."""

    table = "mooncakestore"

    local_hostname: str
    metadata_server: str
    protocol: str
    master_server_address: str
    global_segment_size: int
    local_buffer_size: int
    transfer_timeout: int
    device_name: str = ""
    save_chunk_meta: bool = True


OWNERS = (
    TableOwner(DatabaseSettings, "database", "acme-checks 2.0"),
    TableOwner(MooncakeSettings, "mooncake", "acme-stores 1.0"),
)

Judge = Callable[..., Configuration]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Validate a TOML text, variables and overrides; the file is ``lmcache.toml`` in the current folder."""
    monkeypatch.chdir(tmp_path)

    def _judge(
        text: str | None = None, environ: Mapping[str, str] | None = None, owners: Any = OWNERS, **overrides: object
    ) -> Configuration:
        if text is not None:
            Path("lmcache.toml").write_text(text, encoding="utf-8")
        sources = read_sources(config_file=None, environ=environ or {}, overrides=overrides)
        return validate(sources, owners, policies=POLICIES, schemes=SCHEMES, unloaded=UNLOADED)

    return _judge


@pytest.fixture
def problems(judge: Judge) -> Callable[..., list[str]]:
    """The problems of a configuration; it must have some."""

    def _problems(*args: Any, **kwargs: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            judge(*args, **kwargs)
        return list(caught.value.problems)

    return _problems
