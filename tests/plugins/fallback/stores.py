"""Real stores whose reads, writes or both a test takes away and gives back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from tests.redis_server import RedisServer


class Store(Protocol):
    """A store that a whole cache uses."""

    url: str

    def break_writes(self) -> None: ...

    def take_away(self) -> None: ...

    def mend(self) -> None: ...


class Folder:
    """``file://``. Permissions do not bind root, so that other things are put into the way."""

    def __init__(self, place: Path) -> None:
        self.root = place / "kv"
        self.url = f"file://{self.root}"
        self._aside = place / "aside"

    def break_writes(self) -> None:
        """Where half-written files are kept, there is a file."""
        shutil.move(self.root / ".tmp", self._aside)
        (self.root / ".tmp").write_text("in the way")

    def take_away(self) -> None:
        self.root.rename(self._aside)

    def mend(self) -> None:
        if (self.root / ".tmp").is_file():
            (self.root / ".tmp").unlink()
            shutil.move(self._aside, self.root / ".tmp")
        elif self._aside.exists():
            self._aside.rename(self.root)


class Valkey:
    """``redis://``."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = server.url
        self._frozen = False

    def break_writes(self) -> None:
        self._do("CONFIG", "SET", "min-replicas-to-write", "1")

    def break_reads(self) -> None:
        self._do("ACL", "SETUSER", "default", "-get")

    def take_away(self) -> None:
        self._server.pause()
        self._frozen = True

    def mend(self) -> None:
        if self._frozen:
            self._server.resume()
            self._frozen = False
        self._do("CONFIG", "SET", "min-replicas-to-write", "0")
        self._do("ACL", "SETUSER", "default", "+@all")

    def _do(self, *words: str) -> None:
        with self._server.client() as client:
            client.execute_command(*words)
