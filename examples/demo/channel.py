"""What a child process tells its parent: one JSON object a line on the standard output."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class Channel:
    """The child's end. Whatever else writes to the standard output goes to the log instead."""

    def __init__(self) -> None:
        self._lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, kind: str, **fields: Any) -> None:
        """Tell the parent something."""
        self._lines.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._lines.flush()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Move the parent's progress bar."""
        self.send("progress", stage=stage, done=done, total=total)

    def wait(self, moment: str) -> None:
        """Tell the parent that it is time for something, and wait until it has been done."""
        self.send("ready", moment=moment)
        if not sys.stdin.readline():
            raise SystemExit("the demo's parent process is gone")
