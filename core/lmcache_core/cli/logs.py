"""Log lines of a command: to stderr, and only what the user asked for."""

from __future__ import annotations

import logging
from types import TracebackType


class StderrLog:
    """Sends log records to stderr while a command runs, as a context manager.

    Errors only, one line each: commands print what they find themselves, and a warning of the
    same would show it twice. After `show_all` everything, with tracebacks.
    """

    def __init__(self) -> None:
        self._handler = logging.StreamHandler()
        self._handler.setLevel(logging.ERROR)
        self._handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
        self._level_before = logging.WARNING

    def show_all(self) -> None:
        """Show debug lines and tracebacks too."""
        self._handler.setLevel(logging.DEBUG)
        self._handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logging.getLogger().setLevel(logging.DEBUG)

    def step_aside(self) -> None:
        """Write nothing more: a command that runs for long has a log of its own."""
        logging.getLogger().removeHandler(self._handler)

    def __enter__(self) -> StderrLog:
        root = logging.getLogger()
        self._level_before = root.level
        root.addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        root = logging.getLogger()
        root.removeHandler(self._handler)
        root.setLevel(self._level_before)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        return self.formatMessage(record)
