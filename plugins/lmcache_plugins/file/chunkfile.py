"""One chunk, one file: written beside, then renamed; read straight into the caller's buffer."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

from lmcache_core import BackendError, BackendFullError, BackendTimeoutError, Frame, LoadResult

_PIECE_BYTES = 8 * 1024 * 1024  # the deadline is looked at between two pieces
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # non-blocking: a FIFO in the way must not hang the reader
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def failure(error: OSError, *, name: str, doing: str, path: str) -> BackendError:
    """Turn an operating system's error into one sentence."""
    reason = (error.strerror or type(error).__name__).lower()
    if error.errno in _NO_ROOM:
        return BackendFullError(f"{name}: no room while {doing} {path}: {reason}; free space, or raise the quota")
    return BackendError(f"{name}: failed while {doing} {path}: {reason}")


def check_deadline(deadline: float, *, name: str, doing: str) -> None:
    """Stop work that nobody waits for any more.

    Raises:
        BackendTimeoutError: The deadline has passed.
    """
    if time.monotonic() >= deadline:
        raise BackendTimeoutError(f"{name}: no time left while {doing}")


def has_chunk(path: str) -> bool:
    """Tell whether there is a chunk; an empty file is none, as a power cut can leave one.

    Raises:
        OSError: The file could not be asked for; absence is no error.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def has_length(path: str, length_bytes: int) -> bool:
    """Tell whether there is a chunk of this length, so that writing it again is idle."""
    try:
        found = os.stat(path)
    except OSError:
        return False  # writing will say what is wrong
    return stat.S_ISREG(found.st_mode) and found.st_size == length_bytes


def read_chunk(path: str, out: memoryview) -> LoadResult:
    """Fill a buffer from a file of exactly its length; one copy.

    Raises:
        OSError: The file could not be asked for; absence is a miss.
    """
    try:
        handle = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return LoadResult.MISS
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size != len(out):
            return LoadResult.CORRUPT
        done_bytes = 0
        while done_bytes < len(out):
            count = os.preadv(handle, [out[done_bytes:]], done_bytes)
            if count == 0:  # cut short while it was read
                return LoadResult.CORRUPT
            done_bytes += count
    finally:
        os.close(handle)
    return LoadResult.HIT


def write_temporary(path: str, frame: Frame, *, name: str, mode: int, fsync: bool, deadline: float) -> None:
    """Write a frame to a new file; a failure leaves no file behind.

    Raises:
        OSError: It could not be written.
        BackendTimeoutError: The deadline passed.
    """
    handle = os.open(path, _WRITE_FLAGS, mode)
    try:
        try:
            done_bytes = 0
            while done_bytes < len(frame):
                check_deadline(deadline, name=name, doing="writing a chunk")
                done_bytes += os.write(handle, frame[done_bytes : done_bytes + _PIECE_BYTES])
            if fsync:
                os.fsync(handle)
        finally:
            os.close(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def sync_folder(path: str) -> None:
    """Force a folder's entries to the disk, so that a rename outlives a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
