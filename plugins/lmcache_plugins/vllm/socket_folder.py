"""The folder of a worker's socket, and such folders that killed workers left behind."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

_PREFIX = "lmcache-vllm-"
_LOCKS = "*.lock"
_SETTLED_S = 60.0  # a worker locks its socket moments after it has made the folder


def make_socket_folder(clock: Callable[[], float] = time.time) -> Path:
    """Make a folder that only this user can enter, and remove those whose workers are dead.

    vLLM kills its workers when it ends, so that they cannot do it themselves.

    Args:
        clock: Seconds since the epoch, as files have them.

    Raises:
        OSError: It cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    for other in folder.parent.glob(f"{_PREFIX}*"):
        try:
            left = other != folder and _is_left(other, clock())
        except OSError as error:  # removed meanwhile, or not for us to look into
            log.debug("lmcache-core: %s is not looked into: %s", other, error)
            continue
        if left:
            shutil.rmtree(other, ignore_errors=True)
            log.debug("lmcache-core: removed %s, which a dead worker left", other)
    return folder


def _is_left(folder: Path, now_s: float) -> bool:
    """Whether it is ours, and no living process holds a socket in it."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or now_s - found.st_mtime < _SETTLED_S:
        return False
    return not any(_is_held(lock) for lock in folder.glob(_LOCKS))


def _is_held(lock: Path) -> bool:
    handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
