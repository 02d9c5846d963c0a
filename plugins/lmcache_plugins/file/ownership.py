"""Who owns a private folder: one instance at a time, as the kernel's file lock says."""

from __future__ import annotations

import fcntl
import os

from lmcache_core import BackendError

_OWNER_BYTES = 64


class Ownership:
    """A lock on a folder's marker file; the kernel ends it with the process, however that dies.

    Args:
        marker: Path of the marker file, which exists.
        title_bytes: Length of the marker's first line; the owner's number is written behind it.

    Raises:
        BackendError: Another instance has it.
        OSError: The marker could not be opened.
    """

    def __init__(self, marker: str, *, title_bytes: int, name: str) -> None:
        self._handle = os.open(marker, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._handle, _OWNER_BYTES, title_bytes).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise BackendError(
                f"{name}: the folder {os.path.dirname(marker)} is in use by process {owner}; "
                "give each instance a folder of its own"
            ) from None
        except OSError:
            os.close(self._handle)
            raise
        os.pwrite(self._handle, f"{os.getpid()}".ljust(_OWNER_BYTES - 1).encode() + b"\n", title_bytes)

    def release(self) -> None:
        """Let the next instance in."""
        os.close(self._handle)
