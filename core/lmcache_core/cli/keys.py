"""Single keys from a terminal, while a screen is drawn."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any

_MOST_BYTES = 64


class Keys:
    """Gives keys as they are pressed, without Return; a context manager that leaves the terminal as it was.

    Where stdin is no terminal there are none, and waiting only waits.
    """

    def __init__(self) -> None:
        self._before: Any = None

    def wait(self, timeout_s: float) -> str:
        """Wait for what is typed; ``""`` when nothing was in time. A key such as an arrow is several letters."""
        if self._before is None:
            time.sleep(timeout_s)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
        return os.read(sys.stdin.fileno(), _MOST_BYTES).decode(errors="replace") if ready else ""

    def __enter__(self) -> Keys:
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
            self._before = None
