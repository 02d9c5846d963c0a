"""The user's own folder for sockets and tokens that live as long as a process."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path


def runtime_dirs(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Give the folders, best first: in the user's runtime directory, else one under the temporary one."""
    user = os.getuid()
    given = environ.get("XDG_RUNTIME_DIR", "")
    folders = [Path(given)] if given.startswith("/") else []
    folders.append(Path(f"/run/user/{user}"))
    found = [folder / "lmcache-core" for folder in dict.fromkeys(folders) if folder.is_dir()]
    return (*found, Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"lmcache-core-{user}")


def make_private(folder: Path) -> None:
    """Make a folder of our own, or refuse one that another user could have prepared.

    Raises:
        OSError: It cannot be made, or is not a folder that only this user can enter.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(0, "is not a folder that only this user can enter")
