"""The token that a client needs to change something, and the file where the command line finds it."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from lmcache_core.runtime_dir import make_private, runtime_dirs

log = logging.getLogger(__name__)

_TOKEN_BYTES = 32


class TokenFile:
    """The configured token, or one made up and written to a file that only the user who runs the cache can read.

    The token is never logged and never shown.

    Args:
        configured: ``internal_api_server_token``; ``""`` to make one up.
        environ: Says where the runtime directory is.

    Attributes:
        token: What a client must send.
    """

    def __init__(self, configured: str = "", environ: Mapping[str, str] = os.environ) -> None:
        self.token = configured or secrets.token_urlsafe(_TOKEN_BYTES)
        self._made_up = not configured
        self._environ = environ
        self._path: Path | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(path={self._path})"

    @property
    def path(self) -> Path | None:
        """Where the token can be read; None when it is configured, or not published."""
        return self._path

    def publish(self, port: int) -> None:
        """Write a token that was made up where the command line looks for it; a failure is one warning."""
        if not self._made_up:
            return
        problems: list[str] = []
        for folder in runtime_dirs(self._environ):
            problem = self._write(folder, port)
            if not problem:
                return
            problems.append(problem)
        log.warning(
            "internal_api_server: the token could not be written (%s); nothing can be changed over HTTP until "
            "internal_api_server_token is set",
            "; ".join(problems),
        )

    def withdraw(self) -> None:
        """Remove the file, unless another process has replaced it."""
        path, self._path = self._path, None
        if path is None:
            return
        try:
            if path.read_text(encoding="ascii") == self.token:
                path.unlink()
        except OSError as error:
            log.info("internal_api_server: the token file %s is gone: %s", path, error.strerror)

    def _write(self, folder: Path, port: int) -> str:
        try:
            make_private(folder)
            path = folder / _name(port)
            _write_private(path, self.token)
        except OSError as error:
            return f"{folder}: {error.strerror or error}"
        self._path = path
        return ""


def token_files(port: int, environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Give the places where a cache on this port may have left its token."""
    return tuple(folder / _name(port) for folder in runtime_dirs(environ))


def _name(port: int) -> str:
    return f"token-{port}"


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
