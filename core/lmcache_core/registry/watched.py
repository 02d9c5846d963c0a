"""A third party's code on a thread of its own, waited for so long and no longer."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OverdueError(Exception):
    """The call has not returned yet. It runs on, which nothing in Python can change.

    Attributes:
        since: How long it was waited for and where it stands: ``after 10 s (in connect, hooks.py line 3)``.
        stack: The lines of the stack down to there.
    """

    def __init__(self, since: str, stack: str) -> None:
        super().__init__(f"still running {since}, at:\n{stack}")
        self.since = since
        self.stack = stack


class WatchedCall(threading.Thread, Generic[T]):
    """One call of one plugin's code.

    A daemon, so that a call which never returns does not keep the process from ending. Nothing is
    thrown into it either: to stop an import half-way would break what it imports for the host too.

    Args:
        call: What to call.
        target: What it belongs to, such as an entry point's value.
        on_late: Told on the call's own thread when it ends after all, though nobody waits any more; gets what gives
            its value, or raises what it raised.
    """

    def __init__(self, call: Callable[[], T], *, target: str, on_late: Callable[[Callable[[], T]], None]) -> None:
        super().__init__(name=f"lmcache-plugin-{target}", daemon=True)
        self.target = target
        self._call = call
        self._on_late = on_late
        self._lock = threading.Lock()
        self._values: list[T] = []
        self._error: BaseException | None = None
        self._done = False
        self._given_up = False

    def run(self) -> None:
        """Call, and keep what comes of it."""
        try:
            self._values.append(self._call())
        except BaseException as error:  # noqa: BLE001 - `wait` raises it where it is waited for
            self._error = error
        with self._lock:
            self._done = True
            late = self._given_up
        if late:
            self._on_late(self.outcome)

    def wait(self, limit_s: float) -> T:
        """Start it and wait.

        Raises:
            OverdueError: It is still running after so many seconds.
            BaseException: Whatever the call raised.
        """
        self.start()
        self.join(min(limit_s, threading.TIMEOUT_MAX))
        with self._lock:
            self._given_up = not self._done
        if self._given_up:
            place, stack = where_is(self)
            raise OverdueError(f"after {limit_s:g} s{place}", stack)
        return self.outcome()

    @classmethod
    def find_given_up(cls, target: str) -> WatchedCall[object] | None:
        """Give a call for the target that is still running though nobody waits for it."""
        return next((one for one in cls._all_given_up() if one.target == target), None)

    @classmethod
    def any_given_up(cls) -> bool:
        """Tell whether any such call is still running."""
        return any(cls._all_given_up())

    @property
    def hangs(self) -> bool:
        """Whether it is still running though nobody waits any more."""
        with self._lock:
            return self._given_up and not self._done

    @classmethod
    def _all_given_up(cls) -> list[WatchedCall[object]]:
        return [one for one in threading.enumerate() if isinstance(one, WatchedCall) and one.hangs]

    def outcome(self) -> T:
        """Give its value, or raise what it raised; only once it has ended."""
        if self._error is not None:
            raise self._error
        return self._values[0]


def where_is(thread: threading.Thread) -> tuple[str, str]:
    """Say where a thread stands: `` (in connect, hooks.py line 3)``, ``""`` where that is not known; and its stack."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way to another thread's stack
    frames = [one for one in traceback.extract_stack(frame) if not _is_machinery(one.filename)] if frame else []
    if not frames:
        return "", ""
    file = frames[-1].filename.rpartition("/")[2]
    return f" (in {frames[-1].name}, {file} line {frames[-1].lineno})", "".join(traceback.format_list(frames))


def _is_machinery(filename: str) -> bool:
    return filename in {__file__, threading.__file__} or filename.startswith("<frozen importlib")
