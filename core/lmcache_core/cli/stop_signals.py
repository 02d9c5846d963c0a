"""The signals that end a server: the first asks, the second ends the process at once."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGINT)
_SHELL_OFFSET = 128
_LOOK_S = 0.2
"""The system may hand a signal to another thread; this one would not notice while it only waits."""


class StopSignals:
    """Takes SIGTERM, SIGINT and SIGHUP while it is entered; of the main thread only.

    A handler does nothing but note the signal: it may run in the middle of any other code, of a
    log line's too.

    Args:
        end: Ends the process at once, with an exit code; tests give another one.
    """

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        self._end = end
        self._came: queue.SimpleQueue[signal.Signals] = queue.SimpleQueue()
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def wait(self, timeout_s: float | None = None) -> signal.Signals | None:
        """Wait for the next signal; None when there is none in time."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            with contextlib.suppress(queue.Empty):
                return self._came.get(timeout=min(left_s, _LOOK_S))
            if not left_s:
                return None

    def __enter__(self) -> StopSignals:
        for one in (*_ENDING, signal.SIGHUP):
            self._before[one] = signal.signal(one, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        came = signal.Signals(number)
        if came in _ENDING:
            if self._asked:
                self._end(_SHELL_OFFSET + number)
            self._asked = True
        self._came.put(came)
