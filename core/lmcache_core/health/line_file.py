"""A file of JSON lines that is written behind: history and audit log."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

log = logging.getLogger(__name__)

_MOST_WAITING = 1000
_MOST_BYTES = 10 << 20
"""From this size on the file is moved to ``<name>.1``, over the one before; so it never takes more than twice that."""


class LineFile:
    """Appends records on a thread of its own: a disk that hangs or is full keeps no caller waiting. Any thread.

    The file is opened anew for each batch, so that it may be rotated from outside. Only its owner can read it.

    Args:
        path: The file; its folder is made.
        on_loss: Told how many records could not be written.
        most_waiting: Records that may wait; more are lost.
        most_bytes: Size from which on the file is moved aside.
    """

    def __init__(
        self,
        path: Path,
        on_loss: Callable[[int], None] = lambda _: None,
        *,
        most_waiting: int = _MOST_WAITING,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.path = path
        self._on_loss = on_loss
        self._most_waiting = most_waiting
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._failed = False

    def write(self, record: Mapping[str, object]) -> None:
        """Queue a record; it is lost, and counted, when too many wait already."""
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._changed:
            lost = self._closed or len(self._waiting) >= self._most_waiting
            if not lost:
                self._waiting.append(line)
                self._start()
                self._changed.notify_all()
        if lost:
            self._on_loss(1)

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be written; False when that takes too long or the last batch was lost."""
        with self._changed:
            done = self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout_s)
            return done and not self._failed

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what can be written in time and take no more."""
        self.flush(timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"lmcache-lines-{self.path.name}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while lines := self._take():
            failed = False
            try:
                self._append(b"".join(lines))
            except OSError as error:
                failed = True
                self._on_loss(len(lines))
                if not self._failed:
                    log.warning("%s cannot be written: %s; its lines are lost and counted", self.path, error.strerror)
            with self._changed:
                self._failed = failed
                self._writing = False
                self._changed.notify_all()

    def _take(self) -> list[bytes]:
        """Wait for lines; none once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            lines = list(self._waiting)
            self._waiting.clear()
            self._writing = bool(lines)
            return lines

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self.path, flags, 0o600)
        try:
            if os.fstat(handle).st_size > self._most_bytes:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                os.close(handle)
                handle = os.open(self.path, flags, 0o600)
            while data:
                data = data[os.write(handle, data) :]
        finally:
            os.close(handle)


def wall_time(unix_s: float) -> str:
    """Write a time as RFC 3339 in UTC, to the millisecond."""
    whole = int(unix_s)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((unix_s - whole) * 1000):03d}Z"
