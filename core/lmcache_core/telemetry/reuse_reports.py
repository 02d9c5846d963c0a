"""Where a running cache leaves its reuse report for ``lmcachectl reuse report``."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lmcache_core.telemetry.identity import state_folder
from lmcache_core.telemetry.reuse_snapshot import ReuseSnapshot

_PREFIX, _SUFFIX = "reuse-", ".json"
_MODE = 0o600
_STALE_S = 7 * 86_400.0
_MOST_BYTES = 4 << 20


class ReuseReports:
    """A folder with one report for each cache instance, readable for its owner alone.

    Args:
        folder: Made when the first report is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"

    @classmethod
    def of(cls, folder: str, environ: Mapping[str, str]) -> ReuseReports | None:
        """Name the folder of the configuration, else the user's for state; None for a user without a home."""
        if folder:
            return cls(Path(folder).expanduser())
        state = state_folder(environ)
        return None if state is None else cls(state / "reuse")

    def write(self, snapshot: ReuseSnapshot) -> Path:
        """Replace this instance's report, at once for every reader.

        Raises:
            OSError: The folder or file cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / self._name
        own = path.with_name(f".{self._name}.{secrets.token_hex(4)}")
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(snapshot.to_json(), file, allow_nan=False)
            own.replace(path)
        except BaseException:
            own.unlink(missing_ok=True)
            raise
        return path

    def remove_stale(self) -> None:
        """Delete reports, also half-written ones, that nobody has renewed for a week."""
        with suppress(OSError):
            for path in (*self.folder.glob(f"{_PREFIX}*{_SUFFIX}"), *self.folder.glob(f".{_PREFIX}*{_SUFFIX}.*")):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > _STALE_S:
                        path.unlink()

    def newest_first(self) -> list[Path]:
        """Give all instances' reports."""
        found: list[tuple[float, Path]] = []
        for path in self.folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            with suppress(OSError):
                found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found, reverse=True)]


def read_report(path: Path) -> ReuseSnapshot:
    """Read one report.

    Raises:
        OSError: It cannot be read.
        ValueError: A sentence: it is no report, a damaged one, or another version's.
    """
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError("no reuse report")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("no reuse report") from None
    return ReuseSnapshot.from_json(value)
