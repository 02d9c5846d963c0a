"""The result of the last send, on disk, so that another process can show it. Written only while telemetry is on."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from lmcache_core.telemetry.outbox import LastResult

_FILE = "usage-last.json"


def write_last(folder: Path | None, result: LastResult, endpoint: str) -> None:
    """Replace the file; nothing happens where the folder cannot be written.

    Args:
        folder: From `identity.state_folder`.
        result: What to keep.
        endpoint: The collector's address without credentials.
    """
    if folder is None:
        return
    text = json.dumps(
        {"at_s": result.at_s, "message_type": result.message_type, "reason": result.reason, "endpoint": endpoint}
    )
    own = folder / f".{_FILE}.{os.getpid()}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        own.replace(folder / _FILE)


def read_last(folder: Path | None) -> tuple[LastResult, str] | None:
    """Give the last result and the collector it is about; None where there is none that can be read."""
    if folder is None:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((folder / _FILE).read_text())
        return (
            LastResult(float(found["at_s"]), str(found["message_type"]), str(found["reason"])),
            str(found["endpoint"]),
        )
    return None
