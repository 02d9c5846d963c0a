"""What a ``file://`` or ``disk://`` address says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lmcache_core import ConfigError, StoreURL

_SWITCH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, and how carefully to write into it.

    Attributes:
        folder: Absolute and normalised.
        fsync: Whether the address asks for it: ``file:///path?fsync=true``.
    """

    folder: str
    fsync: bool = False

    @classmethod
    def of(cls, url: StoreURL) -> Location:
        """Read an address.

        Raises:
            ConfigError: It names no absolute folder, or has an option that nobody knows.
        """
        if url.host not in ("", "localhost") or url.port is not None or url.username or url.password:
            raise ConfigError(f"{url}: a {url.scheme}:// address has no host; write {url.scheme}:///absolute/path")
        folder = os.path.normpath(url.path) if url.path else ""
        if not folder.startswith("/") or folder.strip("/") == "" or "\0" in folder:
            raise ConfigError(f"{url}: names no folder; write {url.scheme}:///absolute/path")
        return cls(folder="/" + folder.lstrip("/"), fsync=cls._fsync(url))

    @staticmethod
    def _fsync(url: StoreURL) -> bool:
        fsync = False
        for name, value in url.query:
            if name != "fsync":
                raise ConfigError(f"{url}: unknown option {name!r}; the only one is fsync=true or fsync=false")
            if value.lower() not in _SWITCH:
                raise ConfigError(f"{url}: option fsync must be true or false, got {value!r}")
            fsync = _SWITCH[value.lower()]
        return fsync
