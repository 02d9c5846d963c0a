"""Two random numbers that tell machines and sessions apart and say nothing about them."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_FILE = "machine_id"
_FOLDER = "lmcache"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MODE = 0o600


def new_session_id() -> str:
    """Give a random number for one session."""
    return str(uuid.uuid4())


def config_folder(environ: Mapping[str, str]) -> Path | None:
    """Give the user's folder for settings, ``~/.config/lmcache`` or below ``XDG_CONFIG_HOME``; None without a home."""
    return _user_folder(environ, "XDG_CONFIG_HOME", ".config")


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Give the user's folder for state, ``~/.local/state/lmcache`` or below ``XDG_STATE_HOME``; None without a home."""
    return _user_folder(environ, "XDG_STATE_HOME", ".local/state")


def machine_id(folder: Path | None, *, create: bool = True) -> str:
    """Read the random number of this user on this machine, and make it where there is none.

    Never derived from hardware or names. Processes that make it at the same time agree on one.

    Args:
        folder: From `config_folder`.
        create: False to leave the disk alone.

    Returns:
        ``""`` where there is none and none can be made.
    """
    if folder is None:
        return ""
    path = folder / _FILE
    with suppress(OSError):
        if found := _read(path):
            return found
        if create:
            _make(path)
            return _read(path)
    return ""


def _user_folder(environ: Mapping[str, str], variable: str, default: str) -> Path | None:
    named = environ.get(variable, "")
    if named and Path(named).is_absolute():
        return Path(named) / _FOLDER
    home = environ.get("HOME", "")
    return Path(home) / default / _FOLDER if home else None


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return text if _UUID.fullmatch(text) else ""


def _make(path: Path) -> None:
    """Write a file of our own, then give it the name if nobody else's has it; one that is damaged is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = path.with_name(f".{_FILE}.{uuid.uuid4()}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{uuid.uuid4()}\n")
        try:
            os.link(own, path)
        except FileExistsError:
            if not _read(path):
                own.replace(path)
    finally:
        own.unlink(missing_ok=True)
