"""A small JSON document that outlives the process: written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20


class StateFile:
    """One instance's file. A second instance with the same file is told so, and keeps its hands off it.

    Writing replaces the file in one step, and only its owner can read it. Not safe from several threads at once.

    Args:
        path: The file; its folder is made when it is opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self) -> str:
        """Make it ours; give ``""``, or why it is not."""
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            return f"{self.path} cannot be used: {error.strerror}"
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return f"{self.path} belongs to another process; give each instance a lmcache_instance_id of its own"
        except OSError as error:
            os.close(handle)
            return f"{self.path} cannot be locked: {error.strerror}"
        self._lock = handle
        return ""

    @property
    def is_open(self) -> bool:
        """Whether it is ours."""
        return self._lock is not None

    def close(self) -> None:
        """Let another instance have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> Any:
        """Give the document, None where there is none.

        Raises:
            ValueError: It is no JSON document; it has been moved to ``<name>.corrupt``.
            OSError: It cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        try:
            return json.loads(data if len(data) <= _MOST_BYTES else b"")
        except (ValueError, RecursionError) as error:
            self.set_aside()
            raise ValueError(f"{self.path} is no JSON document: {error}") from error

    def set_aside(self) -> None:
        """Keep a file that makes no sense for people to look at."""
        with contextlib.suppress(OSError):  # the next write replaces it anyhow
            self.path.replace(self.path.with_name(self.path.name + ".corrupt"))

    def write(self, document: object) -> None:
        """Replace the document.

        Raises:
            OSError: The file is as it was before.
        """
        handle, name = tempfile.mkstemp(prefix=self.path.name + ".", suffix=".new", dir=self.path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=2, allow_nan=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
